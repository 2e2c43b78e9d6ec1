import { hash } from 'node:crypto';
import type { ApiApp } from '../api-context.ts';
import { matchesTag } from './answer.ts';

/** A file of the page. */
export interface UIFile {
  /** The path below `/`; see {@link uiPath}. */
  readonly name: string;
  /** Content type without a charset. */
  readonly type: string;
  readonly text: string;
}

/** The page runs only its own script and connects only to its own agent. Other pages cannot embed it. */
const HEADERS = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cache-control': 'no-cache',
};

/** Returns the path that serves a file: `/` for `index.html`, otherwise its name. */
export function uiPath({ name }: Pick<UIFile, 'name'>): string {
  return name === 'index.html' ? '/' : `/${name}`;
}

/**
 * Adds the routes of the page. The API server must serve them without a token. The tag of the script is the version of
 * the page.
 */
export function addUIRoutes(app: ApiApp, files: readonly UIFile[]): void {
  for (const file of files) {
    const { type, text } = file;
    const etag = `"${hash('sha1', text, 'base64url')}"`;
    const headers = { ...HEADERS, 'content-type': `${type}; charset=utf-8`, etag };
    app.get(uiPath(file), (c) =>
      matchesTag(c.req.header('if-none-match'), etag)
        ? c.body(null, 304, headers)
        : c.body(text, 200, headers),
    );
  }
}
