import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { crc32, deflateRawSync, gzipSync } from 'node:zlib';

/** A file to write: path in the archive and content. */
export interface WrittenFile {
  readonly name: string;
  readonly content: string | Buffer;
}

/** Modification time of all files, in seconds since the epoch. */
export const WRITTEN_AT = 1_700_000_000;

function bytesOf({ content }: WrittenFile): Buffer {
  return typeof content === 'string' ? Buffer.from(content) : content;
}

function le(size: 2 | 4, value: number): Buffer {
  const bytes = Buffer.alloc(size);
  bytes.writeUIntLE(value, 0, size);
  return bytes;
}

/** Returns a zip file: deflated, with the times of Go's writer. */
export function zipOf(files: readonly WrittenFile[]): Buffer {
  const parts: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const file of files) {
    const name = Buffer.from(file.name);
    const content = bytesOf(file);
    const packed = deflateRawSync(content);
    const extra = Buffer.concat([le(2, 0x5455), le(2, 5), Buffer.from([1]), le(4, WRITTEN_AT)]);
    const common = [
      ...[le(2, 20), le(2, 0), le(2, 8), le(2, 0), le(2, 0)],
      ...[le(4, crc32(content)), le(4, packed.length), le(4, content.length), le(2, name.length)],
    ];
    const local = Buffer.concat([le(4, 0x04034b50), ...common, le(2, 0), name, packed]);
    const rest = [le(2, extra.length), le(2, 0), le(2, 0), le(2, 0), le(4, 0), le(4, offset), name, extra];
    directory.push(Buffer.concat([le(4, 0x02014b50), le(2, 20), ...common, ...rest]));
    parts.push(local);
    offset += local.length;
  }
  const listed = Buffer.concat(directory);
  const end = [le(4, 0x06054b50), le(2, 0), le(2, 0), le(2, files.length), le(2, files.length)];
  return Buffer.concat([...parts, listed, ...end, le(4, listed.length), le(4, offset), le(2, 0)]);
}

function octal(value: number, width: number): string {
  return `${value.toString(8).padStart(width - 1, '0')}\0`;
}

/** Returns one entry of a tar file with its padding. */
export function tarEntry(name: string, content: Buffer, type: string): Buffer {
  const header = Buffer.alloc(512);
  header.write(name.slice(0, 100), 0);
  header.write(octal(0o600, 8), 100);
  header.write(octal(0, 8), 108);
  header.write(octal(0, 8), 116);
  header.write(octal(content.length, 12), 124);
  header.write(octal(WRITTEN_AT, 12), 136);
  header.write('        ', 148);
  header.write(type, 156);
  header.write('ustar\x0000', 257);
  let sum = 0;
  for (const byte of header) sum += byte;
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
  return Buffer.concat([header, content, Buffer.alloc((512 - (content.length % 512)) % 512)]);
}

/** Returns a tar file. Long names have a GNU header. */
export function tarOf(files: readonly WrittenFile[]): Buffer {
  const entries = files.flatMap((file) => {
    const entry = tarEntry(file.name, bytesOf(file), '0');
    if (file.name.length <= 100) return [entry];
    return [tarEntry('././@LongLink', Buffer.from(`${file.name}\0`), 'L'), entry];
  });
  return Buffer.concat([...entries, Buffer.alloc(1024)]);
}

/** Returns a compressed tar file. */
export function tarGzOf(files: readonly WrittenFile[]): Buffer {
  return gzipSync(tarOf(files));
}

/** Writes the files into a folder. */
export function writeFolder(folder: string, files: readonly WrittenFile[]): void {
  for (const file of files) {
    const path = join(folder, file.name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, bytesOf(file));
  }
}
