// Bundles the page of the agent with its dependencies into dist/ui: it loads nothing from other origins.
import { copyFile, mkdir } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const from = new URL('../ui/', import.meta.url);
const to = new URL('../dist/ui/', import.meta.url);
const path = (name, base) => fileURLToPath(new URL(name, base));

await mkdir(to, { recursive: true });
await copyFile(new URL('index.html', from), new URL('index.html', to));
await build({
  entryPoints: [
    { in: path('page.tsx', from), out: 'page' },
    { in: path('styles/page.css', from), out: 'page' },
  ],
  outdir: path('.', to),
  bundle: true,
  minify: true,
  format: 'esm',
  target: ['es2022', 'chrome123', 'firefox120', 'safari17.5'],
  jsx: 'automatic',
  jsxImportSource: 'preact',
  define: { 'process.env.NODE_ENV': '"production"' },
});
