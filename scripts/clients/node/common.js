// The test data and the checks that the Node.js clients share.
'use strict'

const assert = require('node:assert/strict')

const BINARY = Buffer.from(Array.from({ length: 256 }, (_, i) => i))
const LARGE = Buffer.alloc(1 << 20, BINARY)
const number = (i, digits) => String(i).padStart(digits, '0')

// Compares a reply with the expected one.
function expect(name, got, want) {
  assert.deepEqual(got, want, `${name}: the reply differs`)
}

// Returns the fields and values of the large hash.
function fields() {
  return Object.fromEntries(Array.from({ length: 10000 }, (_, i) => [`field:${number(i, 5)}`, `value:${i}`]))
}

// Returns the keys that a scan must find, in order.
function scanKeys(prefix) {
  return Array.from({ length: 1000 }, (_, i) => `${prefix}:scan:${number(i, 4)}`)
}

// Runs the function of the phase that the command line names, and prints its result.
async function runPhase(phases) {
  const phase = phases[process.argv[2]]
  if (!phase) throw new Error(`usage: ${process.argv[1]} write|check`)
  // A reply that never arrives leaves the event loop empty, which would end the process well.
  process.exitCode = 1
  console.log(await phase())
  process.exitCode = 0
}

module.exports = {
  BINARY,
  LARGE,
  assert,
  expect,
  fields,
  host: '127.0.0.1',
  port: Number(process.env.SERVER_PORT),
  runPhase,
  scanKeys,
  sleep: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
  socket: process.env.SERVER_SOCKET,
}
