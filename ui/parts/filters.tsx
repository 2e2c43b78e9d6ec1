import type { VNode } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { adjust, useAddress } from '../address.ts';

/** Time after the last key stroke until a filter is applied. */
const SETTLED_MS = 250;

/** A text filter. Its value is a parameter of the address. */
export function TextFilter({
  name,
  label,
  example,
}: {
  name: string;
  label: string;
  example: string;
}): VNode {
  const value = useAddress().parameters.get(name) ?? '';
  const [text, setText] = useState(value);
  const timer = useRef<ReturnType<typeof setTimeout>>();
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (document.activeElement !== input.current) setText(value); // but not while the user types
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const apply = (next: string): void => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => adjust({ [name]: next.trim() }), SETTLED_MS);
  };
  return (
    <label>
      {label}
      <input
        ref={input}
        type="search"
        value={text}
        placeholder={example}
        autocomplete="off"
        spellcheck={false}
        onInput={({ currentTarget }) => {
          setText(currentTarget.value);
          apply(currentTarget.value);
        }}
      />
    </label>
  );
}

/** A filter with a fixed set of values. Without `value`, it shows the parameter `name` of the address. */
export function Choice({
  name,
  label,
  options,
  value: given,
  text = (option) => option,
}: {
  name: string;
  label: string;
  options: readonly string[];
  value?: string;
  text?: (option: string) => string;
}): VNode {
  const { parameters } = useAddress();
  const value = given ?? parameters.get(name) ?? '';
  const all = value === '' || options.includes(value) ? options : [value, ...options];
  return (
    <label>
      {label}
      <select value={value} onChange={({ currentTarget }) => adjust({ [name]: currentTarget.value })}>
        <option value="">all</option>
        {all.map((option) => (
          <option key={option} value={option}>
            {text(option)}
          </option>
        ))}
      </select>
    </label>
  );
}
