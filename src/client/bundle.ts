import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { Ask } from '../api/api-client.ts';
import { messageOf } from '../base/failure.ts';
import { cleanField, withoutSecrets } from '../process/without-secrets.ts';

/** Maximum size of a bundle in bytes. */
export const MAX_BUNDLE_BYTES: number = 20 * 1000 * 1000;

/**
 * Maximum size of one file before compression. The sum of all files is below {@link MAX_BUNDLE_BYTES} even if they
 * cannot be compressed.
 */
const MAX_FILE_BYTES: number = 2 << 20;

/** The requests of a bundle: the name of the file and the path of the API. */
const REQUESTS: readonly (readonly [file: string, path: string])[] = [
  ['status.json', '/v1/status'],
  ['rejections.json', '/v1/rejections'],
  ['conflicts.json', '/v1/conflicts'],
  ['digest.json', '/v1/digest'],
  ['history.json', '/v1/history?limit=1000'],
  ['settings.json', '/v1/settings'],
];

export interface BundleFile {
  readonly name: string;
  readonly text: string;
}

/**
 * Returns the answers of an agent as files, and `errors.txt` with the failed requests by reason. A failure does not
 * affect the other requests.
 */
export async function agentFiles(
  ask: Ask,
): Promise<{ readonly files: readonly BundleFile[]; readonly errors: readonly string[] }> {
  const files: BundleFile[] = [];
  const failed = new Map<string, string[]>();
  for (const [name, path] of REQUESTS) {
    try {
      files.push({ name, text: `${JSON.stringify(await ask(path), cleanField, 1)}\n` });
    } catch (error) {
      const reason = messageOf(error);
      failed.set(reason, [...(failed.get(reason) ?? []), path]);
    }
  }
  const errors = Array.from(failed, ([reason, paths]) => `${paths.join(', ')}: ${reason}`);
  if (errors.length > 0) files.push(textFile('errors.txt', `${errors.join('\n')}\n`));
  return { files, errors };
}

export function textFile(name: string, text: string): BundleFile {
  return { name, text: withoutSecrets(text) };
}

/** Returns true if {@link archive} cuts the file. */
export function isCut({ text }: BundleFile): boolean {
  return Buffer.byteLength(text) > MAX_FILE_BYTES;
}

/**
 * Returns a tar archive (POSIX ustar), compressed with gzip. Long files are cut at their end. Throws if it exceeds
 * {@link MAX_BUNDLE_BYTES}.
 */
export async function archive(files: readonly BundleFile[], modified: Date): Promise<Buffer> {
  const blocks: Buffer[] = [];
  for (const { name, text } of files) {
    const whole = Buffer.from(text);
    const content = whole.length > MAX_FILE_BYTES ? whole.subarray(0, MAX_FILE_BYTES) : whole;
    const padding = Buffer.alloc((TAR_BLOCK_BYTES - (content.length % TAR_BLOCK_BYTES)) % TAR_BLOCK_BYTES);
    blocks.push(tarHeader(name, content.length, modified), content, padding);
  }
  blocks.push(Buffer.alloc(2 * TAR_BLOCK_BYTES)); // the end of an archive
  const packed: Buffer = await promisify(gzip)(Buffer.concat(blocks));
  if (packed.length > MAX_BUNDLE_BYTES)
    throw new Error(`the bundle has ${packed.length} bytes, more than ${MAX_BUNDLE_BYTES}`);
  return packed;
}

/** A tar archive consists of blocks of this size. */
const TAR_BLOCK_BYTES = 512;

/** Returns the header of a file: fields of fixed width, numbers in octal, and the sum of its bytes. */
function tarHeader(name: string, size: number, modified: Date): Buffer {
  const header = Buffer.alloc(TAR_BLOCK_BYTES);
  const octal = (value: number, width: number): string => `${value.toString(8).padStart(width - 1, '0')}\0`;
  header.write(name, 0, 100);
  header.write(octal(0o600, 8), 100); // mode
  header.write(octal(0, 8), 108); // user
  header.write(octal(0, 8), 116); // group
  header.write(octal(size, 12), 124);
  header.write(octal(Math.floor(modified.getTime() / 1000), 12), 136);
  header.write(' '.repeat(8), 148); // the sum counts its own field as spaces
  header.write('0', 156); // type: a file
  header.write('ustar\u000000', 257); // format and version
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
  return header;
}
