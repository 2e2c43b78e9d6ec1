import { isObject } from '../net/fields.ts';

/**
 * Returns the value of a field of a JSON document without secrets. Used as a replacer of `JSON.stringify`: values are
 * cleaned before they are quoted, so the document stays valid.
 */
export function cleanField(name: string, value: unknown): unknown {
  if (typeof value === 'string') return SECRET_NAME.test(name) ? REMOVED : withoutSecrets(value);
  if (typeof value === 'number' || Array.isArray(value)) return SECRET_NAME.test(name) ? REMOVED : value;
  if (!isObject(value)) return value;
  // An object is removed only if its whole name is such a word, because names of services and pods may contain one.
  if (SECRET_OBJECT.test(name)) return REMOVED;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [withoutSecrets(key), inner]));
}

const REMOVED = '[removed]';

const SECRET_WORDS =
  'pass(?:word|wd|phrase)|pwd|token|secret|(?:api|access|private|client|pre[-_]?shared)[-_]?key|authorization|cookie|signature';
// The path of a file is no secret.
const SECRET_PART = `(?:${SECRET_WORDS})(?![\\w-]{0,40}file\\b)`;
const WHOLE_NAME = `[\\w-]{0,40}${SECRET_PART}[\\w-]{0,40}`;
/** A value: quoted within a quoted text, quoted, or one word. The end of the quotes may be cut. */
const VALUE = `(?:\\\\{1,8}"[^"\\n]*"?|"(?:[^"\\\\\\n]|\\\\.)*"?|'[^'\\n]*'?|[^\\s,;&}"']+)`;
/** The start of a line, which may be quoted or an item of a list. */
const LINE = '^[ \\t-]{0,200}["\']?';

const SECRET_NAME = new RegExp(SECRET_PART, 'i');
const SECRET_OBJECT = new RegExp(`^(?:${SECRET_WORDS})s?$`, 'i');

/**
 * Possible secrets, and their replacements. Repetitions of words are bounded, so that the cost is linear in the text.
 */
const SECRETS: readonly (readonly [RegExp, string])[] = [
  [/-----BEGIN [^-\n]*-----[\s\S]*?(-----END [^-\n]*-----|$)/g, REMOVED],
  // A key whose beginning is missing, because only the end of a file was read.
  [/^[\s\S]{0,8192}?-----END [^-\n]*-----/, REMOVED],
  // A whole key in base64.
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
    new RegExp(`(${LINE}${WHOLE_NAME}["']?[ \\t]*:)[ \\t]*[|>][-+\\d]{0,2}[ \\t]*(?:\\n[ \\t].*)+`, 'gim'),
    `$1 ${REMOVED}`,
  ],
  [new RegExp(`(${LINE}${WHOLE_NAME}["']?[ \\t]*:[ \\t]+)(?!["'\\\\{[])\\S.*$`, 'gim'), `$1${REMOVED}`],
  // An environment variable as two fields, `name` and `value`.
  [
    new RegExp(`(name["']?\\s*:\\s*["']?${WHOLE_NAME}["']?\\s*,?\\s*["']?value["']?\\s*:\\s*)${VALUE}`, 'gi'),
    `$1"${REMOVED}"`,
  ],
  // An option or a name and its value, as words or as items of a list.
  [new RegExp(`(--${WHOLE_NAME}[ \\t]+)${VALUE}`, 'gi'), `$1${REMOVED}`],
  [new RegExp(`(["']${WHOLE_NAME}["']\\s*,\\s*)${VALUE}`, 'gi'), `$1"${REMOVED}"`],
  // Begins with the secret word, because an optional prefix would be tried at each character of the text.
  [new RegExp(`(${SECRET_PART}[\\w-]{0,40}(?:\\\\{0,8}["'])?\\s*[:=]\\s*)${VALUE}`, 'gi'), `$1"${REMOVED}"`],
];

/**
 * Returns a text without passwords, tokens, private keys and certificates, as far as they can be recognized by their
 * form. Lines of JSON, such as those of a log, are cleaned field by field, because quotes within quotes hide the form.
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
