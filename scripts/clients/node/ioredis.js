// ioredis against the server, over TCP and a unix socket.
'use strict'

const { once } = require('node:events')
const Redis = require('ioredis')
const { version } = require('ioredis/package.json')
const { BINARY, LARGE, assert, expect, fields, host, port, runPhase, scanKeys, sleep, socket } = require('./common')

const locations = { 'ioredis:tcp': { host, port }, 'ioredis:unix': { path: socket, db: 9 } }

async function write(client, prefix) {
  expect('PING', await client.ping(), 'PONG')
  expect('SET', await client.set(`${prefix}:string`, 'text'), 'OK')
  expect('SET EX', await client.set(`${prefix}:hour`, 'text', 'EX', 3600), 'OK')
  expect('SET PX', await client.set(`${prefix}:brief`, 'text', 'PX', 20), 'OK')
  expect('SET NX', await client.set(`${prefix}:string`, 'other', 'NX'), null)
  expect('MSET', await client.mset({ [`${prefix}:a`]: 1, [`${prefix}:b`]: 2 }), 'OK')
  expect('INCRBY', await client.incrby(`${prefix}:counter`, 41), 41)
  expect('INCR', await client.incr(`${prefix}:counter`), 42)
  expect('SET of bytes', await client.set(Buffer.concat([Buffer.from(prefix), BINARY]), BINARY), 'OK')
  expect('SET of 1 MiB', await client.set(`${prefix}:large`, LARGE), 'OK')
  expect('HSET', await client.hset(`${prefix}:hash`, { name: 'Ada', visits: 1 }), 2)
  expect('HINCRBY', await client.hincrby(`${prefix}:hash`, 'visits', 2), 3)
  expect('HSET of 10,000 fields', await client.hset(`${prefix}:fields`, fields()), 10000)
  await writePipeline(client, prefix)
  await writeTransactions(client, prefix)
  await assert.rejects(client.incr(`${prefix}:hash`), /^ReplyError: WRONGTYPE Operation against a key/)
  await receiveMessages(client, prefix)
  await sleep(50)
  expect('GET after expiry', await client.get(`${prefix}:brief`), null)
}

async function writePipeline(client, prefix) {
  const pipeline = client.pipeline()
  for (const key of scanKeys(prefix)) pipeline.set(key, key)
  pipeline.hget(`${prefix}:a`, 'field').get(`${prefix}:a`)
  const replies = await pipeline.exec()
  const failed = replies[1000][0]
  assert.match(failed.message, /^WRONGTYPE/)
  replies.splice(1000, 1)
  expect('pipeline', replies, [...Array(1000).fill([null, 'OK']), [null, '1']])
}

// Commits a transaction, and loses one to a write of another connection.
async function writeTransactions(client, prefix) {
  const key = `${prefix}:watched`
  const other = client.duplicate()
  expect('WATCH', await client.watch(key), 'OK')
  expect('SET by another connection', await other.set(key, 10), 'OK')
  expect('EXEC after a write to a watched key', await client.multi().set(key, 1).exec(), null)
  const replies = await client.multi().incr(key).hset(`${prefix}:joined`, 'watched', 11).exec()
  expect('EXEC', replies, [[null, 11], [null, 1]])
  await other.quit()
}

async function receiveMessages(client, prefix) {
  const subscriber = client.duplicate()
  expect('SUBSCRIBE', await subscriber.subscribe(`${prefix}:news`), 1)
  expect('PSUBSCRIBE', await subscriber.psubscribe(`${prefix}:n?ws`), 2)
  const received = Promise.all([once(subscriber, 'messageBuffer'), once(subscriber, 'pmessageBuffer')])
  expect('PUBLISH', await client.publish(`${prefix}:news`, BINARY), 2)
  const [message, pmessage] = await received
  expect('messages', [message[1], pmessage[2]], [BINARY, BINARY])
  await subscriber.quit()
}

async function check(client, prefix) {
  expect('GET', await client.get(`${prefix}:string`), 'text')
  const seconds = await client.ttl(`${prefix}:hour`)
  assert(seconds > 0 && seconds <= 3600, `TTL: ${seconds}`)
  expect('MGET', await client.mget(`${prefix}:a`, `${prefix}:none`, `${prefix}:b`), ['1', null, '2'])
  expect('GET of a counter', await client.get(`${prefix}:counter`), '42')
  expect('GET of bytes', await client.getBuffer(Buffer.concat([Buffer.from(prefix), BINARY])), BINARY)
  assert(LARGE.equals(await client.getBuffer(`${prefix}:large`)), 'GET of 1 MiB')
  expect('HGETALL', { ...(await client.hgetall(`${prefix}:hash`)) }, { name: 'Ada', visits: '3' })
  expect('HGETALL of 10,000 fields', { ...(await client.hgetall(`${prefix}:fields`)) }, fields())
  const found = []
  for await (const keys of client.scanStream({ match: `${prefix}:scan:*`, count: 100 })) found.push(...keys)
  expect('SCAN', found.sort(), scanKeys(prefix))
  expect('GET of a watched key', await client.get(`${prefix}:watched`), '11')
  expect('HGET of the transaction', await client.hget(`${prefix}:joined`, 'watched'), '11')
}

async function each(phase) {
  for (const [prefix, options] of Object.entries(locations)) {
    const client = new Redis({ ...options, retryStrategy: null })
    await phase(client, prefix)
    expect('QUIT', await client.quit(), 'OK')
  }
  return `ioredis ${version}: ${Object.keys(locations).join(', ')}`
}

runPhase({ write: () => each(write), check: () => each(check) })
