// node-redis against the server, over TCP and a unix socket, RESP2 and RESP3.
'use strict'

const { RESP_TYPES, WatchError, createClient, createClientPool } = require('redis')
const { version } = require('redis/package.json')
const { BINARY, LARGE, assert, expect, fields, host, port, runPhase, scanKeys, sleep, socket } = require('./common')

const tcp = { socket: { host, port, reconnectStrategy: false } }
const unix = { socket: { path: socket, tls: false, reconnectStrategy: false } }
const locations = {
  'node:tcp2': { ...tcp, RESP: 2 },
  'node:tcp3': { ...tcp, RESP: 3, name: 'node-redis' },
  'node:unix3': { ...unix, RESP: 3, database: 9 },
}
const bytes = { [RESP_TYPES.BLOB_STRING]: Buffer }

async function write(client, prefix, options) {
  expect('PING', await client.ping(), 'PONG')
  expect('SET', await client.set(`${prefix}:string`, 'text'), 'OK')
  expect('SET EX', await client.set(`${prefix}:hour`, 'text', { expiration: { type: 'EX', value: 3600 } }), 'OK')
  expect('SET PX', await client.set(`${prefix}:brief`, 'text', { expiration: { type: 'PX', value: 20 } }), 'OK')
  expect('SET NX', await client.set(`${prefix}:string`, 'other', { condition: 'NX' }), null)
  expect('MSET', await client.mSet({ [`${prefix}:a`]: '1', [`${prefix}:b`]: '2' }), 'OK')
  expect('INCRBY', await client.incrBy(`${prefix}:counter`, 41), 41)
  expect('INCR', await client.incr(`${prefix}:counter`), 42)
  expect('SET of bytes', await client.set(Buffer.concat([Buffer.from(prefix), BINARY]), BINARY), 'OK')
  expect('SET of 1 MiB', await client.set(`${prefix}:large`, LARGE), 'OK')
  expect('HSET', await client.hSet(`${prefix}:hash`, { name: 'Ada', visits: 1 }), 2)
  expect('HINCRBY', await client.hIncrBy(`${prefix}:hash`, 'visits', 2), 3)
  expect('HSET of 10,000 fields', await client.hSet(`${prefix}:fields`, fields()), 10000)
  // node-redis sends the commands of one tick as a pipeline.
  const replies = await Promise.all(scanKeys(prefix).map((key) => client.set(key, key)))
  expect('pipeline', replies, Array(1000).fill('OK'))
  await writeTransactions(client, prefix, options)
  await assert.rejects(client.incr(`${prefix}:hash`), /WRONGTYPE Operation against a key/)
  await receiveMessages(client, prefix)
  await sleep(50)
  expect('GET after expiry', await client.get(`${prefix}:brief`), null)
}

// Commits a transaction, and loses one to a write of another connection.
async function writeTransactions(client, prefix, options) {
  const key = `${prefix}:watched`
  const pool = await createClientPool(options).connect()
  await pool.execute(async (watching) => {
    await watching.watch(key)
    expect('SET by another connection', await client.set(key, '10'), 'OK')
    await assert.rejects(watching.multi().set(key, '1').exec(), WatchError)
  })
  await pool.close()
  expect('EXEC', await client.multi().incr(key).hSet(`${prefix}:joined`, 'watched', 11).exec(), [11, 1])
}

async function receiveMessages(client, prefix) {
  const subscriber = await client.duplicate().connect()
  let receive
  const received = new Promise((resolve) => (receive = resolve))
  await subscriber.subscribe(`${prefix}:news`, receive, true)
  expect('PUBLISH', await client.publish(`${prefix}:news`, BINARY), 1)
  expect('message', await received, BINARY)
  await subscriber.close()
}

// Reads a key from the client's cache until another connection changes the key.
async function useClientSideCache() {
  const other = await createClient(tcp).connect()
  const cached = createClient({ ...tcp, RESP: 3, clientSideCache: { ttl: 0, maxEntries: 100 } })
  await cached.connect()
  expect('SET', await other.set('node:cached', 'old'), 'OK')
  expect('GET', [await cached.get('node:cached'), await cached.get('node:cached')], ['old', 'old'])
  const { hitCount, missCount } = cached.clientSideCache.stats()
  expect('hits and misses of the cache', [hitCount, missCount], [1, 1])
  expect('SET', await other.set('node:cached', 'new'), 'OK')
  for (let tries = 0; (await cached.get('node:cached')) !== 'new'; tries++) {
    assert(tries < 500, 'the invalidation does not arrive')
    await sleep(10)
  }
  await cached.close()
  await other.close()
}

async function check(client, prefix) {
  const raw = client.withTypeMapping(bytes)
  expect('GET', await client.get(`${prefix}:string`), 'text')
  const seconds = await client.ttl(`${prefix}:hour`)
  assert(seconds > 0 && seconds <= 3600, `TTL: ${seconds}`)
  expect('MGET', await client.mGet([`${prefix}:a`, `${prefix}:none`, `${prefix}:b`]), ['1', null, '2'])
  expect('GET of a counter', await client.get(`${prefix}:counter`), '42')
  expect('GET of bytes', await raw.get(Buffer.concat([Buffer.from(prefix), BINARY])), BINARY)
  assert(LARGE.equals(await raw.get(`${prefix}:large`)), 'GET of 1 MiB')
  expect('HGETALL', { ...(await client.hGetAll(`${prefix}:hash`)) }, { name: 'Ada', visits: '3' })
  expect('HGETALL of 10,000 fields', { ...(await client.hGetAll(`${prefix}:fields`)) }, fields())
  const found = []
  for await (const keys of client.scanIterator({ MATCH: `${prefix}:scan:*`, COUNT: 100 })) found.push(...keys)
  expect('SCAN', found.sort(), scanKeys(prefix))
  expect('GET of a watched key', await client.get(`${prefix}:watched`), '11')
  expect('HGET of the transaction', await client.hGet(`${prefix}:joined`, 'watched'), '11')
}

async function each(phase) {
  for (const [prefix, options] of Object.entries(locations)) {
    const client = await createClient(options).connect()
    await phase(client, prefix, options)
    await client.close()
  }
  return `node-redis ${version}: ${Object.keys(locations).join(', ')}`
}

async function writeAll() {
  await useClientSideCache()
  return each(write)
}

runPhase({ write: writeAll, check: () => each(check) })
