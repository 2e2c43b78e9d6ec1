import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { Ask } from '../api/api-client.ts';
import { messageOf } from '../base/failure.ts';
import { isObject } from '../net/fields.ts';

/** Maximum size of a bundle in bytes. */
export const MAX_BUNDLE: number = 20 * 1000 * 1000;

/** Maximum size of one file before compression. The sum of all files is below {@link MAX_BUNDLE} even if they cannot be compressed. */
const MAX_FILE: number = 2 << 20;

/** The requests of a bundle: the name of the file and the path of the API. */
const QUESTIONS: readonly (readonly [file: string, path: string])[] = [
  ['status.json', '/v1/status'],
  ['rejections.json', '/v1/rejections'],
  ['conflicts.json', '/v1/conflicts'],
  ['digest.json', '/v1/digest'],
  ['history.json', '/v1/history?limit=1000'],
];

/** A file of a bundle. */
export interface BundleFile {
  readonly name: string;
  readonly text: string;
}

/**
 * Returns the answers of an agent, and `errors.txt` with the questions that it did not answer, by reason. One failure does not affect
 * the other questions.
 */
export async function agentFiles(
  ask: Ask,
): Promise<{ readonly files: readonly BundleFile[]; readonly errors: readonly string[] }> {
  const files: BundleFile[] = [];
  const unanswered = new Map<string, string[]>();
  for (const [name, path] of QUESTIONS) {
    try {
      files.push({ name, text: `${JSON.stringify(await ask(path), cleanField, 1)}\n` });
    } catch (error) {
      const reason = messageOf(error);
      unanswered.set(reason, [...(unanswered.get(reason) ?? []), path]);
    }
  }
  const errors = Array.from(unanswered, ([reason, paths]) => `${paths.join(', ')}: ${reason}`);
  if (errors.length > 0) files.push(textFile('errors.txt', `${errors.join('\n')}\n`));
  return { files, errors };
}

/** Returns a file with a text without its secrets. */
export function textFile(name: string, text: string): BundleFile {
  return { name, text: withoutSecrets(text) };
}

/** Returns true if {@link archive} cuts the file. */
export function isCut({ text }: BundleFile): boolean {
  return Buffer.byteLength(text) > MAX_FILE;
}

/** Removes the secrets of a field of a JSON document. Fields are cleaned before they are quoted, so the document stays valid. */
function cleanField(name: string, value: unknown): unknown {
  if (typeof value === 'string') return SECRET_NAME.test(name) ? REMOVED : withoutSecrets(value);
  if (typeof value === 'number' || Array.isArray(value)) return SECRET_NAME.test(name) ? REMOVED : value;
  if (!isObject(value)) return value;
  // An object is removed only if its name is that of a secret, because names of services and pods may contain such words.
  if (SECRET_OBJECT.test(name)) return REMOVED;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [withoutSecrets(key), inner]));
}

const REMOVED = '[removed]';

const WORDS =
  'pass(?:word|wd|phrase)|pwd|token|secret|(?:api|access|private|client|pre[-_]?shared)[-_]?key|authorization|cookie|signature';
// The path of a file is no secret.
const NAMES = `(?:${WORDS})(?![\\w-]{0,40}file\\b)`;
const NAME = `[\\w-]{0,40}${NAMES}[\\w-]{0,40}`;
/** A value: quoted within a quoted text, quoted, or one word. The end of the quotes may be cut. */
const VALUE = `(?:\\\\{1,8}"[^"\\n]*"?|"(?:[^"\\\\\\n]|\\\\.)*"?|'[^'\\n]*'?|[^\\s,;&}"']+)`;
/** Begins a line that may be quoted or an item of a list. */
const LINE = '^[ \\t-]{0,200}["\']?';

const SECRET_NAME = new RegExp(NAMES, 'i');
const SECRET_OBJECT = new RegExp(`^(?:${WORDS})s?$`, 'i');

/** Possible secrets, and their replacements. Repetitions of words are bounded, so that the cost is linear in the text. */
const SECRETS: readonly (readonly [RegExp, string])[] = [
  [/-----BEGIN [^-\n]*-----[\s\S]*?(-----END [^-\n]*-----|$)/g, REMOVED],
  // A key whose begin is missing, because only the end of a file was read.
  [/^[\s\S]{0,8192}?-----END [^-\n]*-----/, REMOVED],
  // The same in base64.
  [/LS0tLS1CRUdJTi[\w+/=]+/g, REMOVED],
  [/\b(bearer|basic|negotiate)\s+[^\s"',;]+/gi, `$1 ${REMOVED}`],
  [/\beyJ[\w-]+\.[\w-]+\.[\w-]*/g, REMOVED],
  // A URL, or an endpoint without a scheme. The `=` is excluded because labels have it.
  [/([a-z][\w+.-]{0,20}:\/\/)[^/\s"'<>]*@/gi, `$1${REMOVED}@`],
  [/\b[\w.-]{1,64}:[^\s"'/@=]{1,256}@(?=[\w.-]{0,128}[a-z])/gi, `${REMOVED}@`],
  // A header, to the end of the line.
  [/((?:authorization|cookie)["']?[ \t]*[:=][ \t]*)(?!["'\\])[^\n"']+/gi, `$1${REMOVED}`],
  // YAML: a text of several lines, and the rest of a line.
  [
    new RegExp(`(${LINE}${NAME}["']?[ \\t]*:)[ \\t]*[|>][-+\\d]{0,2}[ \\t]*(?:\\n[ \\t].*)+`, 'gim'),
    `$1 ${REMOVED}`,
  ],
  [new RegExp(`(${LINE}${NAME}["']?[ \\t]*:[ \\t]+)(?!["'\\\\{[])\\S.*$`, 'gim'), `$1${REMOVED}`],
  // A variable as two fields.
  [
    new RegExp(`(name["']?\\s*:\\s*["']?${NAME}["']?\\s*,?\\s*["']?value["']?\\s*:\\s*)${VALUE}`, 'gi'),
    `$1"${REMOVED}"`,
  ],
  // An option or a name and its value, as words or as items of a list.
  [new RegExp(`(--${NAME}[ \\t]+)${VALUE}`, 'gi'), `$1${REMOVED}`],
  [new RegExp(`(["']${NAME}["']\\s*,\\s*)${VALUE}`, 'gi'), `$1"${REMOVED}"`],
  [new RegExp(`(${NAME}(?:\\\\{0,8}["'])?\\s*[:=]\\s*)${VALUE}`, 'gi'), `$1"${REMOVED}"`],
];

/**
 * Returns a text without passwords, tokens, private keys and certificates, as far as they can be recognized by their form. Lines of
 * JSON, such as those of a log, are cleaned field by field, because quotes within quotes hide the form.
 */
export function withoutSecrets(text: string): string {
  const clean = text.replace(/^[ \t]*(?:\{.*\}|\[.*\])[ \t\r]*$/gm, withoutSecretsInJSON);
  return SECRETS.reduce((rest, [pattern, replacement]) => rest.replace(pattern, replacement), clean);
}

/** Returns the text of a JSON document without secrets; the text itself if it has none or is no JSON. */
function withoutSecretsInJSON(text: string): string {
  try {
    const value: unknown = JSON.parse(text);
    const clean = JSON.stringify(value, cleanField);
    return clean === JSON.stringify(value) ? text : clean;
  } catch {
    return text; // no JSON, or nested too deeply
  }
}

/** Returns a tar archive (POSIX ustar), compressed with gzip. Long files are cut at their end. Throws if it exceeds {@link MAX_BUNDLE}. */
export async function archive(files: readonly BundleFile[], modified: Date): Promise<Buffer> {
  const blocks: Buffer[] = [];
  for (const { name, text } of files) {
    const whole = Buffer.from(text);
    const content = whole.length > MAX_FILE ? whole.subarray(0, MAX_FILE) : whole;
    blocks.push(tarHeader(name, content.length, modified), content, Buffer.alloc(-content.length & 511));
  }
  blocks.push(Buffer.alloc(1024));
  const packed: Buffer = await promisify(gzip)(Buffer.concat(blocks));
  if (packed.length > MAX_BUNDLE)
    throw new Error(`the bundle has ${packed.length} bytes, more than ${MAX_BUNDLE}`);
  return packed;
}

/** Returns the header of a file: fields of fixed width, numbers in octal, and the sum of its bytes. */
function tarHeader(name: string, size: number, modified: Date): Buffer {
  const header = Buffer.alloc(512);
  const octal = (value: number, width: number): string => `${value.toString(8).padStart(width - 1, '0')}\0`;
  header.write(name, 0, 100);
  header.write(octal(0o600, 8), 100);
  header.write(octal(0, 8), 108);
  header.write(octal(0, 8), 116);
  header.write(octal(size, 12), 124);
  header.write(octal(Math.floor(modified.getTime() / 1000), 12), 136);
  header.write(' '.repeat(8), 148);
  header.write('0', 156);
  header.write('ustar\u000000', 257);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
  return header;
}
