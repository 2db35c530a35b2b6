// nano 11 against the server: the calls that a program makes every day.

import assert from 'node:assert/strict'
import test from 'node:test'

import Nano from 'nano'

import { COUCH_URL, databaseName, request } from './common.mjs'

const nano = Nano({ url: COUCH_URL })

/** A new, empty database. */
async function database (what) {
  const name = databaseName(what)
  await nano.db.create(name)
  return { name, db: nano.use(name) }
}

const status = (statusCode, error) => ({ statusCode, error })

test('the server tells who it is', async () => {
  const info = await nano.info()
  assert.equal(info.couchdb, 'Welcome')
  assert.match(info.version, /^\d+\.\d+\.\d+/)
  const { uuids } = await nano.uuids(3)
  assert.equal(new Set(uuids).size, 3)
  assert.match(uuids[0], /^[0-9a-f]{32}$/)
})

test('databases: create, list, get, destroy', async () => {
  const name = databaseName('life')
  assert.deepEqual(await nano.db.create(name), { ok: true })
  await assert.rejects(nano.db.create(name), status(412, 'file_exists'))
  assert.ok((await nano.db.list()).includes(name))
  const info = await nano.db.get(name)
  assert.equal(info.db_name, name)
  assert.equal(info.doc_count, 0)
  assert.equal((await nano.use(name).info()).doc_del_count, 0)
  assert.deepEqual(await nano.db.destroy(name), { ok: true })
  await assert.rejects(nano.db.get(name), status(404, 'not_found'))
  await assert.rejects(nano.db.create('Not/allowed!'), status(400, 'illegal_database_name'))
})

test('documents: insert, get, update, head, destroy', async () => {
  const { db } = await database('docs')
  const first = await db.insert({ happy: true, text: 'ü 😀' }, 'rabbit')
  assert.equal(first.ok, true)
  assert.match(first.rev, /^1-[0-9a-f]{32}$/)
  await assert.rejects(db.insert({ happy: false }, 'rabbit'), status(409, 'conflict'))
  const second = await db.insert({ _id: 'rabbit', _rev: first.rev, happy: false })
  assert.deepEqual(await db.get('rabbit'), { _id: 'rabbit', _rev: second.rev, happy: false })
  assert.equal((await db.get('rabbit', { rev: first.rev })).text, 'ü 😀')
  assert.equal((await db.get('rabbit', { revs: true }))._revisions.start, 2)
  const info = await db.get('rabbit', { revs_info: true })
  assert.deepEqual(info._revs_info.map((entry) => entry.rev), [second.rev, first.rev])
  assert.equal((await db.head('rabbit')).etag, `"${second.rev}"`)
  assert.equal((await db.destroy('rabbit', second.rev)).ok, true)
  await assert.rejects(db.get('rabbit'), { ...status(404, 'not_found'), reason: 'deleted' })
  const named = await db.insert({ unnamed: true })
  assert.match(named.id, /^[0-9a-f]{32}$/)
  assert.deepEqual((await db.info()).doc_count, 1)
  assert.deepEqual((await db.info()).doc_del_count, 1)
})

test('bulk, list and fetch', async () => {
  const { db } = await database('bulk')
  const docs = Array.from({ length: 25 }, (_, number) => ({ _id: `d${String(number).padStart(2, '0')}`, number }))
  const answers = await db.bulk({ docs })
  assert.equal(answers.filter(({ ok }) => ok).length, 25)
  const again = await db.bulk({ docs: [{ _id: 'd00' }, { _id: 'new' }, { _id: '_wrong' }] })
    .catch((error) => error)
  assert.ok(again instanceof Error || again[0].error === 'conflict')
  const all = await db.list()
  assert.ok(all.total_rows >= 25)
  const page = await db.list({ startkey: 'd05', limit: 3, skip: 1, include_docs: true })
  assert.deepEqual(page.rows.map((row) => row.doc.number), [6, 7, 8])
  const back = await db.list({ descending: true, startkey: 'd03', endkey: 'd01', inclusive_end: false })
  assert.deepEqual(back.rows.map(({ id }) => id), ['d03', 'd02'])
  const fetched = await db.fetch({ keys: ['d10', 'none', 'd02'] })
  assert.deepEqual(fetched.rows.map((row) => row.doc?.number ?? row.error), [10, 'not_found', 2])
  const revs = await db.fetchRevs({ keys: ['d01'] })
  assert.equal(revs.rows[0].value.rev, answers[1].rev)
})

test('attachments: insert, get, list, destroy, several at once', async () => {
  const { db } = await database('attachments')
  const bytes = Buffer.from([0, 1, 2, 255, 254, 10, 13])
  const put = await db.attachment.insert('new', 'folder/bytes.bin', bytes, 'application/octet-stream')
  assert.deepEqual(await db.attachment.get('new', 'folder/bytes.bin'), bytes)
  const text = 'a text that is worth compressing '.repeat(100)
  const second = await db.attachment.insert('new', 'text.txt', text, 'text/plain', { rev: put.rev })
  assert.equal((await db.attachment.get('new', 'text.txt')).toString(), text)
  const stubs = (await db.get('new'))._attachments
  assert.deepEqual(Object.keys(stubs).sort(), ['folder/bytes.bin', 'text.txt'])
  assert.equal(stubs['text.txt'].length, text.length)
  assert.equal(stubs['text.txt'].stub, true)
  assert.equal((await db.attachment.destroy('new', 'text.txt', { rev: second.rev })).ok, true)
  await assert.rejects(db.attachment.get('new', 'text.txt'), status(404, 'not_found'))
  await assert.rejects(db.attachment.insert('new', 'x', bytes, 'text/plain', { rev: put.rev }), status(409, 'conflict'))
  const parts = [
    { name: 'one.txt', data: 'one', content_type: 'text/plain' },
    { name: 'two.bin', data: bytes, content_type: 'application/octet-stream' }
  ]
  await db.multipart.insert({ several: true }, parts, 'several')
  const whole = await db.get('several', { attachments: true })
  assert.equal(Buffer.from(whole._attachments['two.bin'].data, 'base64').equals(bytes), true)
  assert.equal(Buffer.from(whole._attachments['one.txt'].data, 'base64').toString(), 'one')
})

test('changes: since, limit, include_docs, reader', async () => {
  const { name, db } = await database('changes')
  await db.bulk({ docs: ['a', 'b', 'c'].map((_id) => ({ _id })) })
  const all = await db.changes({})
  assert.deepEqual(all.results.map(({ id }) => id).sort(), ['a', 'b', 'c'])
  assert.equal(all.pending, 0)
  const some = await nano.db.changes(name, { limit: 2, include_docs: true })
  assert.equal(some.results.length, 2)
  assert.equal(some.results[0].doc._id, some.results[0].id)
  const rest = await db.changes({ since: some.last_seq })
  assert.equal(rest.results.length, 1)
  const seen = await new Promise((resolve, reject) => {
    const found = []
    db.changesReader.get({ since: '0', batchSize: 10, includeDocs: true })
      .on('change', (change) => found.push(change.id))
      .on('end', () => resolve(found))
      .on('error', reject)
  })
  assert.deepEqual(seen.sort(), ['a', 'b', 'c'])
})

test('what replicators ask: _revs_diff, _bulk_get, _local, _security', async () => {
  const { name, db } = await database('replicator')
  const { rev } = await db.insert({ value: 1 }, 'doc')
  const unknown = '2-' + 'a'.repeat(32)
  const missing = await nano.request({ db: name, path: '_revs_diff', method: 'POST', body: { doc: [rev, unknown] } })
  assert.deepEqual(missing, { doc: { missing: [unknown], possible_ancestors: [rev] } })
  const got = await nano.request({ db: name, path: '_bulk_get', method: 'POST', body: { docs: [{ id: 'doc' }, { id: 'no' }] } })
  assert.equal(got.results[0].docs[0].ok.value, 1)
  assert.equal(got.results[1].docs[0].error.error, 'not_found')
  const local = await nano.request({ db: name, path: '_local/mark', method: 'PUT', body: { at: 5 } })
  assert.equal(local.rev, '0-1')
  assert.equal((await nano.request({ db: name, path: '_local/mark' })).at, 5)
  const security = { admins: { names: ['a'], roles: [] }, members: { names: [], roles: ['r'] } }
  assert.deepEqual(await nano.request({ db: name, path: '_security', method: 'PUT', body: security }), { ok: true })
  assert.deepEqual(await nano.request({ db: name, path: '_security' }), security)
  assert.equal((await request('POST', `${name}/_ensure_full_commit`, {})).status, 201)
})

test('COPY makes a second document', async () => {
  const { name, db } = await database('copy')
  await db.insert({ value: 1 }, 'original')
  // nano has no call for it, and sends the method in lower case when it is given by hand.
  for (const [method, target] of [['COPY', 'second'], ['copy', 'third']]) {
    const answer = await request(method, `${name}/original`, undefined, { destination: target })
    assert.equal(answer.status, 201)
    assert.equal((await db.get(target)).value, 1)
  }
  assert.equal((await db.get('second')).value, 1)
})

test('sessions: log in with a cookie', async () => {
  const url = new URL(COUCH_URL)
  const anonymous = Nano({ url: `${url.protocol}//${url.host}` })
  const answer = await anonymous.auth(decodeURIComponent(url.username), decodeURIComponent(url.password))
  assert.equal(answer.ok, true)
  const session = await anonymous.session()
  assert.equal(session.userCtx.name, decodeURIComponent(url.username))
  assert.ok(session.userCtx.roles.includes('_admin'))
  await assert.rejects(anonymous.auth('nobody', 'wrong'), status(401, 'unauthorized'))
})
