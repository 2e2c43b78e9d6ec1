// Bundles the page of the agent with its dependencies into dist/ui: it loads nothing from other origins.
import { copyFile, mkdir } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const from = new URL('../ui/', import.meta.url);
const to = new URL('../dist/ui/', import.meta.url);

await mkdir(to, { recursive: true });
for (const name of ['index.html', 'page.css']) await copyFile(new URL(name, from), new URL(name, to));
await build({
  entryPoints: [fileURLToPath(new URL('page.tsx', from))],
  outfile: fileURLToPath(new URL('page.js', to)),
  bundle: true,
  minify: true,
  format: 'esm',
  target: 'es2022',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  define: { 'process.env.NODE_ENV': '"production"' },
});
