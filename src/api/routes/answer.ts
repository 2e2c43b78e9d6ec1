import { hash } from 'node:crypto';
import type { Context, TypedResponse } from 'hono';
import type { JSONParsed } from 'hono/utils/types';

/** A document, or 304 if the client already has it. */
type JSONAnswer<T> =
  | (Response & TypedResponse<JSONParsed<T>, 200, 'json'>)
  | (Response & TypedResponse<Record<never, never>, 304, string>);

/** Returns a document with its ETag, or 304 if the client has this version. The hash costs one pass over the text. */
export function answerJSON<T extends object>(c: Context, document: T): JSONAnswer<T> {
  const text = JSON.stringify(document);
  const etag = `"${hash('sha1', text, 'base64url')}"`;
  const answer = matchesTag(c.req.header('if-none-match'), etag)
    ? c.body(null, 304, { etag })
    : c.body(text, 200, { 'content-type': 'application/json', etag });
  return answer as Response as JSONAnswer<T>; // `text` is the JSON of `document`
}

/** Returns true if a list of tags contains this one. Weak tags and `*` match, too (RFC 9110, 13.1.2). */
function matchesTag(tags: string | undefined, etag: string): boolean {
  return tags !== undefined && (tags.trim() === '*' || tags.match(/"[^"]*"/g)?.includes(etag) === true);
}
