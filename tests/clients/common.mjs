// What the client tests share: where the server is, names of databases, and removing them afterwards.

import { after } from 'node:test'

if (!process.env.COUCH_URL) throw new Error('set COUCH_URL to the server, as http://NAME:PASSWORD@HOST:PORT')

/** The server with its credentials, without a slash at the end. */
export const COUCH_URL = process.env.COUCH_URL.replace(/\/+$/, '')

/** How long a test may wait for something that must happen, in milliseconds. */
export const DEADLINE_MS = 30_000

const made = []

/** A name that no other run uses; the database is removed when the tests of the file are done. */
export function databaseName (what) {
  const name = `clients-${what}-${process.pid}-${made.length}`
  made.push(name)
  return name
}

/** Calls the server without any client library. */
export async function request (method, path, body, more = {}) {
  const url = new URL(COUCH_URL)
  const credentials = Buffer.from(`${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`)
  const headers = { accept: 'application/json', authorization: `Basic ${credentials.toString('base64')}`, ...more }
  if (body !== undefined) headers['content-type'] = 'application/json'
  const answer = await fetch(`${url.protocol}//${url.host}/${path}`, {
    method, headers, body: body === undefined ? undefined : JSON.stringify(body)
  })
  return { status: answer.status, body: await answer.json() }
}

after(async () => {
  for (const name of made) await request('DELETE', name)
})
