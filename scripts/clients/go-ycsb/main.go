// go-ycsb's Redis binding against the server: loads records, runs workloads A and F, and verifies
// all records after the restart.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/magiconair/properties"
	_ "github.com/pingcap/go-ycsb/db/redis"
	"github.com/pingcap/go-ycsb/pkg/client"
	"github.com/pingcap/go-ycsb/pkg/measurement"
	"github.com/pingcap/go-ycsb/pkg/prop"
	_ "github.com/pingcap/go-ycsb/pkg/workload"
	"github.com/pingcap/go-ycsb/pkg/ycsb"
)

const (
	records    = 2_000
	operations = 5_000
	fieldCount = 10
)

// datatypes maps each datatype of the binding to the database for its records.
var datatypes = map[string]int{"hash": 5, "string": 6}

// countingDB counts the calls of a binding, and those that fail.
type countingDB struct {
	ycsb.DB
	reads, writes, failures atomic.Int64
}

func (db *countingDB) Read(ctx context.Context, table, key string, fields []string) (map[string][]byte, error) {
	values, err := db.DB.Read(ctx, table, key, fields)
	// The binding reports an error of HMGET as a record without fields.
	if err == nil && len(values) != fieldCount {
		err = errors.New("fields are missing")
	}
	return values, db.count(&db.reads, "read", err)
}

func (db *countingDB) Update(ctx context.Context, table, key string, values map[string][]byte) error {
	return db.count(&db.writes, "update", db.DB.Update(ctx, table, key, values))
}

func (db *countingDB) Insert(ctx context.Context, table, key string, values map[string][]byte) error {
	return db.count(&db.writes, "insert", db.DB.Insert(ctx, table, key, values))
}

func (db *countingDB) count(calls *atomic.Int64, name string, err error) error {
	calls.Add(1)
	if err != nil && db.failures.Add(1) <= 10 {
		fmt.Printf("%s: %v\n", name, err)
	}
	return err
}

func main() {
	if len(os.Args) != 2 || (os.Args[1] != "write" && os.Args[1] != "check") {
		fmt.Println("usage: go-ycsb write|check")
		os.Exit(1)
	}
	for datatype, database := range datatypes {
		var err error
		if os.Args[1] == "write" {
			err = write(datatype, database)
		} else {
			err = check(datatype, database)
		}
		if err != nil {
			fmt.Printf("datatype %s: %v\n", datatype, err)
			os.Exit(1)
		}
	}
	fmt.Println("go-ycsb 1.0.3: hash, string")
}

// write loads the records, and runs the workloads that write.
func write(datatype string, database int) error {
	load, err := run(datatype, database, map[string]string{prop.DoTransactions: "false", prop.DropData: "true"})
	if err != nil || load.writes.Load() != records {
		return fmt.Errorf("%d records loaded: %w", load.writes.Load(), err)
	}
	workloads := []map[string]string{
		{prop.ReadProportion: "0.5", prop.UpdateProportion: "0.5"},
		{prop.ReadProportion: "0.5", prop.UpdateProportion: "0", prop.ReadModifyWriteProportion: "0.5"},
	}
	for _, workload := range workloads {
		if _, err := run(datatype, database, workload); err != nil {
			return err
		}
	}
	return nil
}

// check reads records, whose values go-ycsb derives from their keys and verifies.
func check(datatype string, database int) error {
	workload := map[string]string{prop.ReadProportion: "1", prop.UpdateProportion: "0"}
	db, err := run(datatype, database, workload)
	if err == nil && db.reads.Load() != operations {
		err = fmt.Errorf("%d reads, expected %d", db.reads.Load(), operations)
	}
	return err
}

// run runs a workload with four connections.
func run(datatype string, database int, workload map[string]string) (*countingDB, error) {
	p := properties.LoadMap(map[string]string{
		"redis.addr":         "127.0.0.1:" + os.Getenv("SERVER_PORT"),
		"redis.datatype":     datatype,
		"redis.db":           strconv.Itoa(database),
		prop.DataIntegrity:   "true",
		prop.DoTransactions:  "true",
		prop.FieldCount:      strconv.Itoa(fieldCount),
		prop.OperationCount:  strconv.Itoa(operations),
		prop.RecordCount:     strconv.Itoa(records),
		prop.TableName:       prop.TableNameDefault,
		prop.ThreadCount:     "4",
		prop.Verbose:         "false",
		prop.MeasurementType: "histogram",
	})
	for name, value := range workload {
		p.MustSet(name, value)
	}
	measurement.InitMeasure(p)
	core, err := ycsb.GetWorkloadCreator("core").Create(p)
	if err != nil {
		return nil, err
	}
	binding, err := ycsb.GetDBCreator("redis").Create(p)
	if err != nil {
		return nil, err
	}
	db := &countingDB{DB: binding}
	client.NewClient(p, core, client.DbWrapper{DB: db}).Run(context.Background())
	if failures := db.failures.Load(); failures > 0 {
		err = fmt.Errorf("%d commands failed", failures)
	}
	return db, errors.Join(err, binding.Close())
}
