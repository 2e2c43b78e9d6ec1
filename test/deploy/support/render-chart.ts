import { stringify } from 'yaml';

/** The values of `{{ … }}` in a template of a chart: `.Values`, `.Release`, `.Chart`, and `.` within `with`. */
type Scope = Readonly<Record<string, unknown>>;

function read(path: string, scope: Scope): unknown {
  if (path === '.') return scope['.'];
  if (/^".*"$/.test(path)) return JSON.parse(path);
  let at: unknown = scope;
  for (const name of path.slice(1).split('.')) {
    if (typeof at !== 'object' || at === null) throw new Error(`${path} does not exist`);
    at = Reflect.get(at, name);
  }
  if (at === undefined) throw new Error(`${path} does not exist`);
  return at;
}

function isTrue(value: unknown): boolean {
  return Array.isArray(value) || (typeof value === 'object' && value !== null)
    ? Object.keys(value).length > 0
    : Boolean(value);
}

/** Returns the value of a pipeline such as `.Values.a | default .Values.b | quote`. */
function evaluate(text: string, scope: Scope): unknown {
  let value: unknown;
  for (const [at, step] of text.split(' | ').entries()) {
    const [name = '', ...words] = step.split(' ');
    const args = words.map((word) => (/^\d+$/.test(word) ? Number(word) : read(word, scope)));
    if (at === 0 && args.length === 0) value = read(name, scope);
    else if (name === 'or') value = args.find(isTrue) ?? args.at(-1);
    else if (name === 'toYaml') value = stringify(args[0]).trimEnd();
    else if (name === 'default') value = isTrue(value) ? value : args[0];
    else if (name === 'quote') value = JSON.stringify(String(value));
    else if (name === 'nindent') value = `\n${value}`.replaceAll('\n', `\n${' '.repeat(Number(args[0]))}`);
    else throw new Error(`unknown function ${name}`);
  }
  return value;
}

/**
 * Renders a template with the functions and blocks that the chart uses, as Helm does: `if` and `with` without `else`,
 * and `{{-`, which removes white space before it.
 */
export function renderTemplate(template: string, scope: Scope): string {
  const parts = template.split(/(\s*\{\{-.*?\}\}|\{\{.*?\}\})/s);
  let at = 0;
  const block = (current: Scope, isOn: boolean): string => {
    let text = '';
    for (; at < parts.length; at++) {
      const [, action] = /^\s*\{\{-? (.*) \}\}$/s.exec(parts[at] ?? '') ?? [];
      const [, keyword, condition = ''] = /^(if|with|end)\b ?(.*)$/.exec(action ?? '') ?? [];
      if (keyword === 'end') return text;
      if (keyword !== undefined) {
        at++;
        const value = isOn ? evaluate(condition, current) : undefined;
        text += block(keyword === 'with' ? { ...current, '.': value } : current, isTrue(value));
      } else if (isOn) text += action === undefined ? parts[at] : String(evaluate(action, current));
    }
    return text;
  };
  return block(scope, true);
}
