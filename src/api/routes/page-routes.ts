import type { ApiApp } from '../api-context.ts';

/** A file of the page. */
export interface PageFile {
  /** `index.html` is served at `/`, the others under their names. */
  readonly name: string;
  readonly type: string;
  readonly text: string;
}

/** Headers that restrict the page to its own script and agent and forbid other pages to embed it. */
const HEADERS = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cache-control': 'no-cache',
};

/** Returns the path that serves a file of the page. */
export function pagePath({ name }: Pick<PageFile, 'name'>): string {
  return name === 'index.html' ? '/' : `/${name}`;
}

/** Adds a route for each file of the page. */
export function addPageRoutes(app: ApiApp, files: readonly PageFile[]): void {
  for (const file of files) {
    const { type, text } = file;
    app.get(pagePath(file), (c) =>
      c.body(text, 200, { ...HEADERS, 'content-type': `${type}; charset=utf-8` }),
    );
  }
}
