import { hash } from 'node:crypto';
import type { Context, TypedResponse } from 'hono';
import type { JSONParsed } from 'hono/utils/types';

/** A document, or that the client has it. */
type Answer<T> =
  | (Response & TypedResponse<JSONParsed<T>, 200, 'json'>)
  | (Response & TypedResponse<Record<never, never>, 304, string>);

/** Answers with a document and its ETag, or with 304 to whoever has it. Costs one pass over the text beside its making. */
export function answerJSON<T extends object>(c: Context, document: T): Answer<T> {
  const text = JSON.stringify(document);
  const etag = `"${hash('sha1', text, 'base64url')}"`;
  const answer = names(c.req.header('if-none-match'), etag)
    ? c.body(null, 304, { etag })
    : c.body(text, 200, { 'content-type': 'application/json', etag });
  return answer as Response as Answer<T>; // the text is of the document
}

/** Whether a list of tags, `*` or weak ones too, names this one (RFC 9110, 13.1.2). */
function names(tags: string | undefined, etag: string): boolean {
  return tags !== undefined && (tags.trim() === '*' || tags.match(/"[^"]*"/g)?.includes(etag) === true);
}
