import { createHash, hash } from 'node:crypto';
import type { Context, TypedResponse } from 'hono';
import type { JSONParsed } from 'hono/utils/types';
import { forEachInSteps, type TurnGate } from '../../base/turn-gate.ts';
import { runWhileConnected } from './route-parts.ts';

/** A document, or 304 if the client already has it. */
type JSONAnswer<T> =
  | (Response & TypedResponse<JSONParsed<T>, 200, 'json'>)
  | (Response & TypedResponse<Record<never, never>, 304, string>);

/** Returns a document with its ETag, or 304 if the client has this version. The hash costs one pass over the text. */
export function answerJSON<T extends object>(c: Context, document: T): JSONAnswer<T> {
  const text = JSON.stringify(document);
  return answerText(c, text, hash('sha1', text, 'base64url'));
}

/**
 * Like {@link answerJSON}, for the JSON text of a document in pieces. `pieces` yields `undefined` for steps without
 * one.
 */
export async function answerPieces<T extends object>(
  c: Context,
  gate: TurnGate,
  pieces: Iterable<string | undefined>,
): Promise<JSONAnswer<T>> {
  const parts: Buffer[] = [];
  const digest = createHash('sha1');
  const add = (text: string | undefined): void => {
    if (text === undefined) return;
    const bytes = Buffer.from(text);
    digest.update(bytes);
    parts.push(bytes);
  };
  await runWhileConnected(c, gate, forEachInSteps(joinPieces(pieces), 1, add));
  return answerText(c, Buffer.concat(parts), digest.digest('base64url'));
}

/** Minimum length of joined pieces: about a millisecond of work. */
const JOINED_LENGTH = 32_768;

/** Joins short pieces of a text, so that a step does not end after each of them. Yields each `undefined`, too. */
export function* joinPieces(pieces: Iterable<string | undefined>): Generator<string | undefined, void, void> {
  let text = '';
  for (const piece of pieces) {
    if (piece === undefined) yield undefined;
    else text += piece;
    if (text.length < JOINED_LENGTH) continue;
    yield text;
    text = '';
  }
  if (text !== '') yield text;
}

/** Returns the answer of a JSON text with this hash. */
function answerText<T>(c: Context, text: string | Uint8Array<ArrayBuffer>, digest: string): JSONAnswer<T> {
  const etag = `"${digest}"`;
  const answer = matchesTag(c.req.header('if-none-match'), etag)
    ? c.body(null, 304, { etag })
    : c.body(text, 200, { 'content-type': 'application/json', etag });
  return answer as Response as JSONAnswer<T>; // the text is the JSON of a `T`
}

/** Returns true if a list of tags contains this one. Weak tags and `*` match, too (RFC 9110, 13.1.2). */
export function matchesTag(tags: string | undefined, etag: string): boolean {
  return tags !== undefined && (tags.trim() === '*' || tags.match(/"[^"]*"/g)?.includes(etag) === true);
}
