import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

/** Returns the scenarios of a trace file, plain or gzipped: one JSON object per line. */
export function readTraces(file: string): readonly unknown[] {
  const bytes = readFileSync(file);
  const text = (file.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString('utf8');
  return text.split('\n').flatMap((line, index) => {
    if (line.trim() === '') return [];
    try {
      return [JSON.parse(line)];
    } catch (cause) {
      throw new Error(`${file}:${index + 1}: not a JSON object`, { cause });
    }
  });
}
