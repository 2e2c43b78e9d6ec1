import type { VNode } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { SearchDocument } from '../../src/api/search/search-document.ts';
import { addressOfResult, type Result, useResults } from '../agent/search.ts';
import { counted, countText } from '../format.ts';
import { Icon } from './icons.tsx';

const NAMES: Readonly<Record<Result['kind'], string>> = {
  prefix: 'Prefixes',
  service: 'Services',
  node: 'Nodes',
  pod: 'Pods',
  identity: 'Identities',
  label: 'Labels',
  namespace: 'Namespaces',
  cluster: 'Clusters',
};

/** A search box with its results. Arrow keys select a result, Enter opens it, Escape closes the results. */
function SearchBox({
  id,
  inputRef,
  onDone,
  isOpenAlways = false,
}: {
  id: string;
  inputRef: { current: HTMLInputElement | null };
  onDone: () => void;
  /** True in the palette of {@link Find}, whose results stay open. */
  isOpenAlways?: boolean;
}): VNode {
  const [text, setText] = useState('');
  const [isOpen, setOpen] = useState(false);
  const [chosen, setChosen] = useState(0);
  const { document: results, problem } = useResults(text);
  const items = results?.groups.flatMap((group) => group.items) ?? [];
  const isShown = text.trim() !== '' && (isOpen || isOpenAlways);
  useEffect(() => setChosen(0), [results]);
  const open = (result: Result | undefined): void => {
    if (result === undefined) return;
    location.hash = addressOfResult(result);
    setText('');
    setOpen(false);
    onDone();
  };
  const pressed = (event: KeyboardEvent): void => {
    const steps: Readonly<Record<string, number>> = { ArrowDown: 1, ArrowUp: -1 };
    const step = steps[event.key];
    if (step !== undefined && items.length > 0) {
      event.preventDefault();
      setChosen((chosen + step + items.length) % items.length);
      setOpen(true);
    } else if (event.key === 'Enter') {
      event.preventDefault();
      // The shown results may belong to an earlier text.
      if (results?.query === text.trim()) open(items[chosen]);
    } else if (event.key === 'Escape' && !isOpenAlways) {
      event.preventDefault();
      if (text === '') onDone();
      setText('');
    }
  };
  useEffect(() => {
    document.getElementById(`${id}-${chosen}`)?.scrollIntoView({ block: 'nearest' });
  }, [chosen]);
  return (
    <>
      <div class="find-box">
        <Icon name="search" />
        <input
          ref={inputRef}
          type="text"
          role="combobox"
          aria-label="Search"
          aria-expanded={isShown}
          aria-controls={`${id}-results`}
          aria-autocomplete="list"
          aria-activedescendant={isShown && items.length > 0 ? `${id}-${chosen}` : undefined}
          placeholder="IP, pod, service, node, label, identity"
          autocomplete="off"
          spellcheck={false}
          value={text}
          onInput={({ currentTarget }) => {
            setText(currentTarget.value);
            setOpen(true);
          }}
          onFocus={() => setOpen(true)}
          onBlur={() => setOpen(false)}
          onKeyDown={pressed}
        />
        {!isOpenAlways && <kbd>/</kbd>}
      </div>
      {isShown && (
        <ResultList
          id={id}
          groups={results?.groups ?? []}
          chosen={chosen}
          onChoose={setChosen}
          onOpen={open}
          note={problem ?? (results === undefined ? 'Searching…' : noteOf(items.length, results.truncated))}
        />
      )}
    </>
  );
}

function noteOf(count: number, isTruncated: boolean): string {
  if (count === 0) return 'No matches. Search for an IP, a CIDR, a part of a name, a label or an identity.';
  return isTruncated ? 'Not all names were compared. Type an exact name, such as NAMESPACE/NAME.' : '';
}

function ResultList({
  id,
  groups,
  chosen,
  onChoose,
  onOpen,
  note,
}: {
  id: string;
  groups: SearchDocument['groups'];
  chosen: number;
  onChoose: (index: number) => void;
  onOpen: (result: Result) => void;
  /** Text below the results; if empty, their number is announced to screen readers. */
  note: string;
}): VNode {
  const results = groups.flatMap((group) => group.items);
  return (
    <div class="results">
      <div role="listbox" id={`${id}-results`} aria-label="Results">
        {groups.map(({ kind, total, items }) => (
          <div role="group" key={kind} aria-label={NAMES[kind]}>
            <h3 role="presentation">
              {NAMES[kind]}
              {total > items.length && ` · ${countText(items.length)} of ${countText(total)}`}
            </h3>
            {items.map((result) => {
              const index = results.indexOf(result);
              return (
                <div
                  key={result.key}
                  id={`${id}-${index}`}
                  role="option"
                  tabIndex={-1}
                  aria-selected={index === chosen}
                  onMouseMove={() => onChoose(index)}
                  onMouseDown={(event) => {
                    event.preventDefault();
                    onOpen(result);
                  }}
                >
                  <span class={kind === 'prefix' ? 'mono' : undefined}>{result.title}</span>
                  <span class="faint">{result.detail}</span>
                </div>
              );
            })}
          </div>
        ))}
      </div>
      <p class={note === '' ? 'hidden' : 'note'} role="status">
        {note === '' ? counted(results.length, 'result') : note}
      </p>
    </div>
  );
}

/** Returns true if the user types into a field. */
function isTyping(): boolean {
  return document.activeElement?.matches('input:not([type=button]), select, textarea') === true;
}

/** The search box of the header, and the palette. `/` focuses the box, Ctrl-K or ⌘-K opens the palette. */
export function Find(): VNode {
  const box = useRef<HTMLInputElement>(null);
  const field = useRef<HTMLInputElement>(null);
  const palette = useRef<HTMLDialogElement>(null);
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    const pressed = (event: KeyboardEvent): void => {
      if (event.key === '/' && !isTyping()) {
        event.preventDefault();
        box.current?.focus();
      } else if (event.key.toLowerCase() === 'k' && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        setOpen((before) => !before);
      }
    };
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  }, []);
  // A layout effect, so that the field has the focus before the next key stroke.
  useLayoutEffect(() => {
    if (!isOpen) return;
    palette.current?.showModal();
    field.current?.focus();
  }, [isOpen]);
  return (
    <div class="find">
      <SearchBox id="find" inputRef={box} onDone={() => box.current?.blur()} />
      {isOpen && (
        // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes the dialog, too
        <dialog
          ref={palette}
          class="palette"
          aria-label="Search"
          onClose={() => setOpen(false)}
          onClick={({ target }) => target === palette.current && setOpen(false)}
        >
          <SearchBox id="palette" inputRef={field} isOpenAlways onDone={() => setOpen(false)} />
        </dialog>
      )}
    </div>
  );
}
