import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { createServer } from 'vite'

const vite = await createServer({
  appType: 'custom',
  server: { middlewareMode: true, ws: false },
  // Nothing is served, so there is nothing to look for in advance.
  optimizeDeps: { noDiscovery: true, include: [] },
  logLevel: 'error',
})
after(() => vite.close())
const { differences } = await vite.ssrLoadModule('/src/lib/differences.ts')
const { bound, waited } = await vite.ssrLoadModule('/src/lib/waits.ts')
const { inService, shares, weightFault } = await vite.ssrLoadModule('/src/lib/shares.ts')

const up = (weight) => ({ weight, usable: true })
const down = (weight) => ({ weight, usable: false })

test('shares are weights over the sum of the candidates', () => {
  assert.deepEqual(shares([up(1), up(0.5)]).map((share) => share.toFixed(4)), ['0.6667', '0.3333'])
  assert.deepEqual(shares([up(0.5), down(1), up(0.5)]), [0.5, 0, 0.5])
  assert.deepEqual(shares([up(0), up(0.01)]), [0, 1])
})

test('nobody gets anything where there is no candidate', () => {
  assert.deepEqual(shares([]), [])
  assert.deepEqual(shares([down(1), up(0)]), [0, 0])
})

test('weights are 0 to 1 in hundredths', () => {
  for (const weight of [0, 0.01, 0.29, 0.57, 1]) assert.equal(weightFault(weight), undefined)
  for (const weight of [-0.01, 1.01, 0.005, Number.NaN, null]) assert.ok(weightFault(weight))
})

test('an endpoint whose first result is awaited gets nothing yet', () => {
  assert.ok(inService({ state: 'healthy', reason: 'No failures' }))
  assert.ok(inService({ state: 'unknown', reason: 'no monitor' }))
  assert.ok(!inService({ state: 'unknown', reason: 'no result yet' }))
  assert.ok(!inService({ state: 'draining', reason: 'disabled, pins still hold' }))
})

test('a difference names the field that changed and nothing else', () => {
  const one = { name: 'one', weight: 1, enabled: true }
  const two = { name: 'two', weight: 1, enabled: true }
  const pool = { name: 'eu', modified_on: 'a', origins: [one, two] }
  const of = (after) => differences(pool, { ...pool, modified_on: 'b', ...after })
  assert.deepEqual(of({}), [])
  assert.deepEqual(of({ origins: [one, { ...two, weight: 0.5 }] }), [{ path: 'origins.two.weight', before: '1', after: '0.5' }])
  assert.deepEqual(of({ origins: [two, one] }), [{ path: 'origins (order)', before: 'one, two', after: 'two, one' }])
  assert.deepEqual(of({ origins: [one] }), [{ path: 'origins.two', before: JSON.stringify(two), after: '' }])
  assert.deepEqual(of({ monitor: null }), [{ path: 'monitor', before: '', after: 'null' }])
})

test('what is made or deleted is shown field by field', () => {
  assert.deepEqual(differences(undefined, { name: 'eu', enabled: false }), [
    { path: 'name', before: '', after: 'eu' },
    { path: 'enabled', before: '', after: 'false' },
  ])
})

test('waits are those of the last minute, and begin anew with a process', () => {
  const at = (second, entered, waited_seconds) => ({ time: second * 1000, entered, waited_seconds })
  const samples = [at(0, 5, 50), at(30, 7, 90), at(60, 7, 90), at(91, 7, 90), at(100, 0, 0), at(110, 2, 6)]
  assert.deepEqual(waited(samples), [null, 20, 20, null, null, null])
  assert.deepEqual(waited([at(0, 0, 0), at(10, 3, 6)]), [null, 2])
})

test('what a line waits for is said', () => {
  const now = (seats, waiting, admitted_last_minute) => ({ seats, waiting, admitted_last_minute })
  assert.equal(bound(now(5, 0, 9), 5, 9), '')
  assert.match(bound(now(5, 1, 0), 5, 9), /seat/)
  assert.match(bound(now(4, 1, 9), 5, 9), /rate/)
  assert.equal(bound(now(4, 1, 3), 5, 9), '')
})
