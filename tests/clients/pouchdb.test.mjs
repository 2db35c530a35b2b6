// PouchDB 9 against the server: push, pull and live sync of a database with conflicts, deletions and attachments, and
// then the same content and the same revisions on both sides.

import assert from 'node:assert/strict'
import test from 'node:test'

import PouchDB from 'pouchdb-core'
import http from 'pouchdb-adapter-http'
import memory from 'pouchdb-adapter-memory'
import replication from 'pouchdb-replication'

import { COUCH_URL, DEADLINE_MS, databaseName } from './common.mjs'

PouchDB.plugin(memory).plugin(http).plugin(replication)

const local = (what) => new PouchDB(databaseName(what) + '-local', { adapter: 'memory' })
const remote = (name) => new PouchDB(`${COUCH_URL}/${name}`, { adapter: 'http' })

/** A revision id as a client would invent it. */
const hash = (letter) => letter.repeat(32)

const BINARY = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte)).toString('base64')
const LARGE = Buffer.alloc(150_000, 'settee ').toString('base64')

/** Documents of every kind that replication has to carry. */
async function fill (db, prefix) {
  const id = (name) => prefix + name
  await db.bulkDocs(Array.from({ length: 60 }, (_, number) => (
    { _id: id(`doc-${String(number).padStart(3, '0')}`), number, text: 'x'.repeat(number) })))
  const first = await db.put({ _id: id('updated'), step: 1 })
  const second = await db.put({ _id: id('updated'), _rev: first.rev, step: 2 })
  await db.put({ _id: id('updated'), _rev: second.rev, step: 3, nested: { list: [1, 2.5, null, true, 'ü', {}] } })
  const gone = await db.put({ _id: id('deleted'), value: 1 })
  await db.remove(id('deleted'), gone.rev)
  await db.put({ _id: id('odd/é 😀 "?#&+%'), odd: true })
  await db.put({ _id: id('numbers'), small: -1, big: 9007199254740991, float: 1.5e-9, list: [0, 255, 256] })
  await db.put({
    _id: id('attached'),
    _attachments: {
      'text.txt': { content_type: 'text/plain', data: Buffer.from('a text that gzip can shorten '.repeat(50)).toString('base64') },
      'binary.bin': { content_type: 'application/octet-stream', data: BINARY },
      'empty.bin': { content_type: 'application/octet-stream', data: '' },
      'folder/large ü.txt': { content_type: 'text/plain', data: LARGE }
    }
  })
  const attached = await db.put({ _id: id('attached-later'), value: 1 })
  await db.putAttachment(id('attached-later'), 'late.bin', attached.rev, BINARY, 'application/octet-stream')
  await conflicts(db, id)
}

/** Branches that no single client would write: two and three leaves, one deleted, one with an attachment. */
async function conflicts (db, id) {
  const branch = (name, start, letters, rest) => ({
    _id: id(name),
    _rev: `${start}-${hash(letters[0])}`,
    _revisions: { start, ids: letters.map(hash) },
    ...rest
  })
  await db.bulkDocs([
    branch('conflict', 2, ['a', '0'], { side: 'a' }),
    branch('conflict', 2, ['b', '0'], { side: 'b' }),
    branch('conflict', 3, ['c', 'b', '0'], { _deleted: true }),
    branch('conflict', 2, ['d', '0'], { side: 'd' }),
    branch('conflict-attached', 1, ['e'], {
      side: 'e', _attachments: { 'same.bin': { content_type: 'application/octet-stream', data: BINARY } }
    }),
    branch('conflict-attached', 1, ['f'], { side: 'f' }),
    branch('all-deleted', 2, ['a', '1'], { _deleted: true }),
    branch('all-deleted', 2, ['b', '1'], { _deleted: true })
  ], { new_edits: false })
}

/** Attachments without what may differ: the digest is of the stored bytes, which one side compresses. */
function attachments (doc) {
  return Object.fromEntries(Object.entries(doc._attachments ?? {}).sort().map(([name, attachment]) => (
    [name, { content_type: attachment.content_type, revpos: attachment.revpos, data: attachment.data }])))
}

const plain = (doc) => ({ ...doc, _attachments: attachments(doc), _conflicts: [...(doc._conflicts ?? [])].sort() })

/** Everything that must be equal on both sides. */
async function contents (db) {
  const listed = await db.allDocs({ include_docs: true, conflicts: true, attachments: true })
  const rows = Object.fromEntries(listed.rows.map((row) => [row.id, { rev: row.value.rev, doc: plain(row.doc) }]))
  const changed = await db.changes({ style: 'all_docs', since: 0 })
  const leaves = {}
  for (const { id } of changed.results) {
    const revisions = await db.get(id, { open_revs: 'all', revs: true, attachments: true })
    leaves[id] = revisions.map(({ ok }) => plain(ok)).sort((a, b) => a._rev < b._rev ? -1 : 1)
  }
  const changes = Object.fromEntries(changed.results.map((row) => (
    [row.id, { deleted: Boolean(row.deleted), revs: row.changes.map(({ rev }) => rev).sort() }])))
  return { rows, leaves, changes }
}

async function assertEqualContents (a, b) {
  const [left, right] = [await contents(a), await contents(b)]
  assert.ok(Object.keys(left.leaves).length > 60)
  assert.deepEqual(left, right)
}

function assertReplicated (result, atLeast) {
  assert.equal(result.ok, true)
  assert.deepEqual(result.errors, [])
  assert.equal(result.doc_write_failures, 0)
  assert.ok(result.docs_written >= atLeast, `${result.docs_written} written, ${atLeast} expected`)
}

test('push: all leaves, deletions and attachments arrive', async () => {
  const source = local('push')
  const target = remote(databaseName('push'))
  await fill(source, '')
  assertReplicated(await source.replicate.to(target, { batch_size: 10 }), 70)
  await assertEqualContents(source, target)
  const conflicted = await target.get('conflict', { conflicts: true })
  assert.equal(conflicted._rev, `2-${hash('d')}`)
  assert.deepEqual(conflicted._conflicts, [`2-${hash('a')}`])
})

test('pull: what was written at the server arrives', async () => {
  const source = remote(databaseName('pull'))
  const target = local('pull')
  await fill(source, 'p:')
  assertReplicated(await target.replicate.from(source, { batch_size: 7 }), 70)
  await assertEqualContents(source, target)
})

test('a second replication finds its checkpoint and carries only what is new', async () => {
  const source = local('again')
  const target = remote(databaseName('again'))
  await fill(source, '')
  assertReplicated(await source.replicate.to(target), 70)
  const idle = await source.replicate.to(target)
  assert.equal(idle.docs_read, 0)
  await source.put({ _id: 'new' })
  const third = await source.replicate.to(target)
  assert.equal(third.docs_written, 1)
  await assertEqualContents(source, target)
})

test('selected documents only', async () => {
  const source = remote(databaseName('some'))
  const target = local('some')
  await fill(source, '')
  const result = await target.replicate.from(source, { doc_ids: ['updated', 'conflict', 'nothing'] })
  assert.equal(result.ok, true)
  const rows = (await target.allDocs()).rows.map(({ id }) => id)
  assert.deepEqual(rows, ['conflict', 'updated'])
})

/** Resolves when both sides are equal; looks whenever the replication says that something happened. */
function equalBySync (sync, a, b, written) {
  return new Promise((resolve, reject) => {
    const deadline = setTimeout(async () => {
      const sizes = await Promise.all([a.info(), b.info()])
      reject(new Error(`not equal after ${DEADLINE_MS} ms: ${JSON.stringify(sizes)}`))
    }, DEADLINE_MS)
    let looking = false
    const look = async () => {
      if (looking) return
      looking = true
      const [left, right] = await Promise.all([a.info(), b.info()])
      looking = false
      if (left.doc_count !== written || right.doc_count !== written) return
      clearTimeout(deadline)
      resolve()
    }
    sync.on('change', look).on('paused', look).on('error', reject).on('denied', reject)
  })
}

test('live sync in both directions', async () => {
  const a = local('live')
  const b = remote(databaseName('live'))
  await b.info()
  const sync = a.sync(b, { live: true })
  const done = new Promise((resolve) => sync.on('complete', resolve))
  try {
    const perSide = 67
    const equal = equalBySync(sync, a, b, 2 * perSide)
    await Promise.all([fill(a, 'a:'), fill(b, 'b:')])
    assert.equal((await a.allDocs()).rows.filter(({ id }) => id.startsWith('a:')).length, perSide)
    await equal
  } finally {
    sync.cancel()
    await done
  }
  await a.replicate.to(b)
  await a.replicate.from(b)
  await assertEqualContents(a, b)
})

test('a conflict made on both sides has one winner, the same one', async () => {
  const a = local('winner')
  const b = remote(databaseName('winner'))
  await a.put({ _id: 'x', from: 'base' })
  await a.replicate.to(b)
  const { _rev } = await a.get('x')
  await a.put({ _id: 'x', _rev, from: 'a' })
  await b.put({ _id: 'x', _rev, from: 'b' })
  await a.sync(b)
  const [left, right] = [await a.get('x', { conflicts: true }), await b.get('x', { conflicts: true })]
  assert.deepEqual(left, right)
  assert.equal(left._conflicts.length, 1)
  await b.remove('x', left._conflicts[0])
  await a.sync(b)
  assert.equal((await a.get('x', { conflicts: true }))._conflicts, undefined)
})

test('the changes feed wakes a waiting client', async () => {
  const db = remote(databaseName('feed'))
  await db.info()
  const feed = db.changes({ live: true, since: 'now', include_docs: true })
  const seen = new Promise((resolve, reject) => feed.on('change', resolve).on('error', reject))
  await db.put({ _id: 'woken', value: 7 })
  const change = await seen
  feed.cancel()
  assert.equal(change.id, 'woken')
  assert.equal(change.doc.value, 7)
})

test('an update without the current revision is a conflict', async () => {
  const db = remote(databaseName('stale'))
  await db.put({ _id: 'x' })
  await assert.rejects(db.put({ _id: 'x' }), { status: 409, name: 'conflict' })
  await assert.rejects(db.get('y'), { status: 404, reason: 'missing' })
})
