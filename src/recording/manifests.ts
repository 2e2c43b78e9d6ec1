import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate as eventLoopTurn } from 'node:timers/promises';
import { type Document, isMap, isNode, isSeq } from 'yaml';
import { readRegularFile } from '../base/files/regular-file.ts';
import { type Rejection, rejection } from '../base/rejection.ts';
import { isObject } from '../net/fields.ts';
import { unreadable } from '../process/input-error.ts';
import { parseIfJson } from './json-slices.ts';
import { findItems, itemsOf, type ListItems } from './list-items.ts';
import {
  blockValue,
  countLines,
  documentsOf,
  parsePart,
  plainValue,
  type YamlPiece,
  yamlPieces,
} from './yaml-documents.ts';

/** A Kubernetes object of a manifest. Its fields are unchecked. */
export interface Manifest {
  /** Position of the object: `file.yaml:12`. */
  readonly at: string;
  readonly object: KubernetesObject;
}

type KubernetesObject = Readonly<Record<string, unknown>>;

type Reject = (rejection: Rejection) => void;

const EXTENSIONS = ['.yaml', '.yml', '.json'];

/** Returns the paths of the manifests in a folder, sorted by name, without its subfolders. Of a file: the file. */
async function manifestFiles(path: string): Promise<readonly string[]> {
  if (!(await stat(path)).isDirectory()) return [path];
  const names = await readdir(path);
  const manifests = names.filter((name) => EXTENSIONS.some((extension) => name.endsWith(extension)));
  return manifests.sort().map((name) => join(path, name));
}

function malformed(field: string, value: unknown, reason: string, at: string): Rejection {
  return rejection('malformed-manifest', field, value, reason, at);
}

/** Returns the line of a text at an offset, cut off after 200 characters, for a rejection. */
function lineFrom(text: string, start = 0): string {
  return text.slice(start, start + 200).split('\n', 1)[0] ?? '';
}

/** Returns true for `List` itself and objects with `items`, because a kind of a CRD may end in `List`, too. */
function isList(object: KubernetesObject): boolean {
  const { kind } = object;
  return kind === 'List' || (typeof kind === 'string' && kind.endsWith('List') && 'items' in object);
}

/** Yields an item of a list. The item of a typed list (`ServiceList`) gets its kind. */
function* listItem(
  { apiVersion, kind: listKind }: KubernetesObject,
  item: unknown,
  index: number,
  at: string,
  onReject: Reject,
): Generator<Manifest, void, void> {
  if (!isObject(item)) {
    onReject(malformed(`items[${index}]`, item, 'must be a Kubernetes object', at));
    return;
  }
  const isTyped = typeof listKind === 'string' && listKind !== 'List';
  const object = isTyped ? { apiVersion, kind: listKind.slice(0, -'List'.length), ...item } : item;
  yield { at, object };
}

/**
 * Yields the objects of the manifests in a text, and the items of lists; see {@link readManifests}. Parses one document
 * in each turn of the event loop.
 */
export async function* parseManifests(
  content: string,
  file: string,
  onReject: Reject,
): AsyncGenerator<Manifest, void, void> {
  const text = content.startsWith('\ufeff') ? content.slice(1) : content; // PowerShell writes a byte order mark
  // A YAML text may begin like JSON, too.
  const json = /^\s{0,64}[{[]/.test(text) ? await parseIfJson(text) : undefined;
  if (json !== undefined) yield* objectsOf(json, `${file}:1`, (index) => `${file} items[${index}]`, onReject);
  else if (await isJsonSequence(text)) yield* parseJsonSequence(text, file, onReject);
  else yield* parseYamlManifests(text, file, onReject);
}

/** Yields the objects of a text with one JSON object after the other. Each object begins at the start of a line. */
function* jsonPieces(text: string): Generator<{ readonly piece: string; readonly line: number }, void, void> {
  let from = text.indexOf('{');
  let line = 1 + countLines(text.slice(0, from));
  while (from < text.length) {
    const next = text.indexOf('\n{', from) + 1;
    const piece = text.slice(from, next === 0 ? undefined : next);
    yield { piece, line };
    line += countLines(piece);
    from += piece.length;
  }
}

/**
 * Resolves to true if the text is a sequence of JSON objects, as JSON Lines and the output of `jq` are: the first or
 * the second object is JSON. The YAML parser would need minutes and gigabytes to reject such a text.
 */
async function isJsonSequence(text: string): Promise<boolean> {
  if (!/^\s{0,64}\{/.test(text) || /^(?:---|\.\.\.)/m.test(text)) return false; // markers of YAML
  const pieces = jsonPieces(text);
  const [first, second] = [pieces.next().value, pieces.next().value];
  if (first === undefined || second === undefined) return false;
  return (await parseIfJson(first.piece)) !== undefined || (await parseIfJson(second.piece)) !== undefined;
}

async function* parseJsonSequence(
  text: string,
  file: string,
  onReject: Reject,
): AsyncGenerator<Manifest, void, void> {
  for (const { piece, line } of jsonPieces(text)) {
    const at = `${file}:${line}`;
    const json = await parseIfJson(piece);
    if (json !== undefined) yield* objectsOf(json, at, (index) => `${at} items[${index}]`, onReject);
    else
      onReject(malformed('document', lineFrom(piece), 'must be JSON, as other objects of the file are', at));
    await eventLoopTurn();
  }
}

async function* parseYamlManifests(
  text: string,
  file: string,
  onReject: Reject,
): AsyncGenerator<Manifest, void, void> {
  for (const piece of yamlPieces(text)) {
    const items =
      piece.text.length > MAX_WHOLE_LIST && !ALIAS.test(piece.text) ? findItems(piece.text) : undefined;
    const list = items && listWithout(items, piece.text);
    if (items !== undefined && list !== undefined) yield* parseItems(piece, items, list, file, onReject);
    else yield* parsePiece(piece, file, onReject);
    await eventLoopTurn();
  }
}

/** The lines before the content of a document: its marker, comments and empty lines. */
const LINES_BEFORE = /^(?:---(?=\s)[ \t]*(?:#[^\n]*)?\r?\n)?(?:[ \t]*(?:#[^\n]*)?\r?\n){0,1000}/;

function* parsePiece(piece: YamlPiece, file: string, onReject: Reject): Generator<Manifest, void, void> {
  const before = LINES_BEFORE.exec(piece.text)?.[0] ?? '';
  const object = blockValue(piece.text.slice(before.length));
  // Lists need the complete parser, because `blockValue` does not return the lines of their items.
  if (isObject(object) && !Array.isArray(object['items'])) {
    const at = `${file}:${piece.linesBefore + countLines(before) + 1}`;
    yield* objectsOf(object, at, () => at, onReject);
    return;
  }
  for (const { document, text, lineAt } of documentsOf(piece)) {
    const place = (offset: number | undefined): string => `${file}:${lineAt(offset ?? 0)}`;
    const start = document.contents?.range?.[0];
    const at = place(document.errors[0]?.pos[0] ?? start);
    const plain = plainValue(document);
    if (typeof plain === 'string') onReject(malformed('document', lineFrom(text, start), plain, at));
    else yield* objectsOf(plain.value, at, (index) => place(itemOffset(document, index)), onReject);
  }
}

/** Maximum length of a list in YAML that is always parsed as a whole: about 50 ms. */
const MAX_WHOLE_LIST = 64 * 1024;
/** An alias at the end of a line. Its anchor may be in another item, so the list is parsed as a whole. */
const ALIAS = /[:-] +\*[^\s,[\]{}"']+[ \r]*\n/;

/** Returns a list without its items; undefined if the text is another object. */
function listWithout({ begin, end }: ListItems, text: string): KubernetesObject | undefined {
  const before = LINES_BEFORE.exec(text)?.[0] ?? '';
  const list = blockValue(text.slice(before.length, begin) + text.slice(end));
  return isObject(list) && isList(list) && list['items'] === null ? list : undefined;
}

/** Yields the items of a large list. Parses one in each turn of the event loop. */
async function* parseItems(
  { text, linesBefore }: YamlPiece,
  items: ListItems,
  list: KubernetesObject,
  file: string,
  onReject: Reject,
): AsyncGenerator<Manifest, void, void> {
  let line = linesBefore + countLines(text.slice(0, items.begin)) + 1;
  let index = 0;
  for (const { item } of itemsOf(text, items)) {
    const at = `${file}:${line}`;
    const parsed = parsePart(item);
    if (typeof parsed === 'string') onReject(malformed(`items[${index}]`, lineFrom(item), parsed, at));
    else yield* listItem(list, parsed.value, index, at, onReject);
    line += countLines(item);
    index++;
    await eventLoopTurn();
  }
}

/** Returns the offset of an item of a list in YAML; that of the document if the item has none. */
function itemOffset({ contents }: Document, index: number): number | undefined {
  const items = isMap(contents) ? contents.get('items', true) : undefined;
  const item = isSeq(items) ? items.items[index] : undefined;
  return isNode(item) ? item.range?.[0] : contents?.range?.[0];
}

/** Yields an object, or the items of a list. `at` is the position of the document, `itemAt` returns that of an item. */
function* objectsOf(
  value: unknown,
  at: string,
  itemAt: (index: number) => string,
  onReject: Reject,
): Generator<Manifest, void, void> {
  if (value === null) return; // an empty document, as before a leading `---`
  if (!isObject(value)) {
    onReject(malformed('document', value, 'must be a Kubernetes object', at));
    return;
  }
  if (!isList(value)) {
    yield { at, object: value };
    return;
  }
  const { items } = value;
  if (items === null) return; // Go writes an empty list as null
  if (!Array.isArray(items)) {
    onReject(malformed('items', items, 'must be a list', at));
    return;
  }
  for (const [index, item] of items.entries()) yield* listItem(value, item, index, itemAt(index), onReject);
}

/**
 * Yields the Kubernetes objects of a file of YAML, JSON or JSON Lines, or of all such files of a folder, sorted by
 * name, without subfolders. An invalid document is passed to `onReject` with `file:line`, and the others are still
 * read. Throws {@link InputError} if a file or folder cannot be read.
 *
 * @param option the option that names the path, for the error
 */
export async function* readManifests(
  path: string,
  onReject: Reject,
  option = '--manifests',
): AsyncGenerator<Manifest, void, void> {
  try {
    for (const file of await manifestFiles(path)) {
      yield* parseManifests((await readRegularFile(file)).toString('utf8'), file, onReject);
    }
  } catch (cause) {
    throw unreadable(option, path, cause);
  }
}
