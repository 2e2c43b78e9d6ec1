import { options } from 'preact';
import { printableLines } from '../src/process/terminal.ts';

/** Attributes with text for people. */
const TEXTS = ['title', 'aria-label'] as const;

/**
 * Escapes control characters and marks of direction in all texts of the page, as the command line does, because an
 * untrusted name must not change how the text around it is read. Call it once, before the first render.
 */
export function escapeTexts(): void {
  const next = options.vnode;
  options.vnode = (node) => {
    // Preact creates a node without a type for each text.
    const { props }: { props: unknown } = node;
    if (typeof props === 'string') Object.assign(node, { props: printableLines(props) });
    else if (typeof node.type === 'string') escapeAttributes(node.props);
    next?.(node);
  };
}

function escapeAttributes(props: object): void {
  for (const name of TEXTS) {
    const value: unknown = Reflect.get(props, name);
    if (typeof value === 'string') Reflect.set(props, name, printableLines(value));
  }
}
