// go-redis against the server, over TCP and a unix socket, RESP2 and RESP3.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	scanKeys   = 1_000
	hashFields = 10_000
)

// session is a client and the prefix of its keys.
type session struct {
	*redis.Client
	prefix string
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	port, socket := os.Getenv("SERVER_PORT"), os.Getenv("SERVER_SOCKET")
	options := map[string]*redis.Options{
		"go:tcp2":  {Addr: "127.0.0.1:" + port, Protocol: 2, ClientName: "go-redis"},
		"go:tcp3":  {Addr: "127.0.0.1:" + port},
		"go:unix3": {Network: "unix", Addr: socket, DB: 9},
	}
	phase := ""
	if len(os.Args) == 2 {
		phase = os.Args[1]
	}
	names := []string{"go:tcp2", "go:tcp3", "go:unix3"}
	for _, prefix := range names {
		s := session{redis.NewClient(options[prefix]), prefix}
		switch phase {
		case "write":
			s.write(ctx)
		case "check":
			s.check(ctx)
		default:
			fail("usage: go-redis write|check")
		}
		expect("Close", s.Close(), error(nil))
	}
	fmt.Printf("go-redis %s: %s\n", redis.Version(), strings.Join(names, ", "))
}

func fail(format string, arguments ...any) {
	fmt.Printf(format+"\n", arguments...)
	os.Exit(1)
}

// expect ends the program unless a value is the expected one.
func expect(name string, got, want any) {
	if !reflect.DeepEqual(got, want) {
		fail("%s: got %.200v, expected %.200v", name, got, want)
	}
}

// must returns the value of a call, and ends the program if the call failed.
func must[T any](value T, err error) T {
	if err != nil {
		fail("a command failed: %v", err)
	}
	return value
}

func (s session) key(name string) string { return s.prefix + ":" + name }

func binary() string {
	bytes := make([]byte, 256)
	for i := range bytes {
		bytes[i] = byte(i)
	}
	return string(bytes)
}

func large() string { return strings.Repeat(binary(), 4096) }

func fields() map[string]string {
	pairs := make(map[string]string, hashFields)
	for i := range hashFields {
		pairs[fmt.Sprintf("field:%05d", i)] = fmt.Sprintf("value:%d", i)
	}
	return pairs
}

// write runs the commands, and leaves the keys that check reads back.
func (s session) write(ctx context.Context) {
	expect("PING", must(s.Ping(ctx).Result()), "PONG")
	expect("SET", must(s.Set(ctx, s.key("string"), "text", 0).Result()), "OK")
	expect("SET EX", must(s.Set(ctx, s.key("hour"), "text", time.Hour).Result()), "OK")
	expect("SET PX", must(s.Set(ctx, s.key("brief"), "text", 20*time.Millisecond).Result()), "OK")
	expect("SET NX", must(s.SetNX(ctx, s.key("string"), "other", 0).Result()), false)
	expect("MSET", must(s.MSet(ctx, s.key("a"), 1, s.key("b"), 2).Result()), "OK")
	expect("INCRBY", must(s.IncrBy(ctx, s.key("counter"), 41).Result()), int64(41))
	expect("INCR", must(s.Incr(ctx, s.key("counter")).Result()), int64(42))
	expect("SET of bytes", must(s.Set(ctx, s.prefix+binary(), binary(), 0).Result()), "OK")
	expect("SET of 1 MiB", must(s.Set(ctx, s.key("large"), large(), 0).Result()), "OK")
	expect("HSET", must(s.HSet(ctx, s.key("hash"), "name", "Ada", "visits", 1).Result()), int64(2))
	expect("HINCRBY", must(s.HIncrBy(ctx, s.key("hash"), "visits", 2).Result()), int64(3))
	expect("HSET of 10,000 fields", must(s.HSet(ctx, s.key("fields"), fields()).Result()), int64(hashFields))
	s.writePipeline(ctx)
	s.writeTransactions(ctx)
	s.countFromGoroutines(ctx)
	s.receiveMessages(ctx)
	err := s.Incr(ctx, s.key("hash")).Err()
	expect("WRONGTYPE", err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE Operation against a key"), true)
	time.Sleep(50 * time.Millisecond)
	expect("GET after expiry", s.Get(ctx, s.key("brief")).Err(), redis.Nil)
}

func (s session) writePipeline(ctx context.Context) {
	replies := must(s.Pipelined(ctx, func(pipeline redis.Pipeliner) error {
		for i := range scanKeys {
			pipeline.Set(ctx, s.key(fmt.Sprintf("scan:%04d", i)), i, 0)
		}
		return nil
	}))
	expect("pipeline", len(replies), scanKeys)
}

// writeTransactions commits a transaction, and loses one to a write of another connection.
func (s session) writeTransactions(ctx context.Context) {
	key := s.key("watched")
	err := s.Watch(ctx, func(tx *redis.Tx) error {
		expect("SET by another connection", must(s.Set(ctx, key, 10, 0).Result()), "OK")
		_, err := tx.TxPipelined(ctx, func(pipeline redis.Pipeliner) error {
			return pipeline.Set(ctx, key, 1, 0).Err()
		})
		return err
	}, key)
	expect("EXEC after a write to a watched key", errors.Is(err, redis.TxFailedErr), true)
	err = s.Watch(ctx, func(tx *redis.Tx) error {
		value := must(tx.Get(ctx, key).Int())
		_, err := tx.TxPipelined(ctx, func(pipeline redis.Pipeliner) error {
			pipeline.Set(ctx, key, value+1, 0)
			pipeline.HSet(ctx, s.key("joined"), "watched", value+1)
			return nil
		})
		return err
	}, key)
	expect("EXEC", err, nil)
}

// countFromGoroutines increments one counter over the pool of connections.
func (s session) countFromGoroutines(ctx context.Context) {
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 100 {
				must(s.Incr(ctx, s.key("shared")).Result())
			}
		})
	}
	group.Wait()
}

func (s session) receiveMessages(ctx context.Context) {
	messages := s.Subscribe(ctx, s.key("news"))
	must(messages.Receive(ctx))
	expect("PUBLISH", must(s.Publish(ctx, s.key("news"), binary()).Result()), int64(1))
	expect("message", must(messages.ReceiveMessage(ctx)).Payload, binary())
	expect("Close", messages.Close(), nil)
}

// check reads back what write left.
func (s session) check(ctx context.Context) {
	expect("GET", must(s.Get(ctx, s.key("string")).Result()), "text")
	left := must(s.TTL(ctx, s.key("hour")).Result())
	expect("TTL", left > 0 && left <= time.Hour, true)
	expect("MGET", must(s.MGet(ctx, s.key("a"), s.key("none"), s.key("b")).Result()), []any{"1", nil, "2"})
	expect("GET of a counter", must(s.Get(ctx, s.key("counter")).Result()), "42")
	expect("GET of a shared counter", must(s.Get(ctx, s.key("shared")).Result()), "800")
	expect("GET of bytes", must(s.Get(ctx, s.prefix+binary()).Result()), binary())
	expect("GET of 1 MiB", must(s.Get(ctx, s.key("large")).Result()), large())
	expect("HGETALL", must(s.HGetAll(ctx, s.key("hash")).Result()), map[string]string{"name": "Ada", "visits": "3"})
	expect("HGETALL of 10,000 fields", must(s.HGetAll(ctx, s.key("fields")).Result()), fields())
	found := map[string]bool{}
	keys := s.Scan(ctx, 0, s.key("scan:*"), 100).Iterator()
	for keys.Next(ctx) {
		found[keys.Val()] = true
	}
	expect("SCAN", keys.Err(), nil)
	expect("keys of SCAN", len(found), scanKeys)
	expect("GET of a watched key", must(s.Get(ctx, s.key("watched")).Result()), "11")
	expect("HGET of the transaction", must(s.HGet(ctx, s.key("joined"), "watched").Result()), "11")
}
