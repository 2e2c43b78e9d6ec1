import type { ComponentChildren, VNode } from 'preact';
import type { RestoredDocument } from '../../src/api/read-model.ts';
import { durationText } from '../../src/base/show-value.ts';
import { timeText } from '../format.ts';

/** The tone of a state. Each has a shape and a colour, so that it can be recognized without colours. */
export type Tone = 'good' | 'warn' | 'bad' | 'idle';

/** A state as a word with a mark. */
export function Mark({
  tone,
  title,
  children,
}: {
  tone: Tone;
  title?: string;
  children: ComponentChildren;
}): VNode {
  return (
    <span class={`mark ${tone}`} title={title}>
      {children}
    </span>
  );
}

/** A small label. */
export function Chip({
  tone = '',
  title,
  children,
}: {
  tone?: Tone | 'accent' | '';
  title?: string;
  children: ComponentChildren;
}): VNode {
  return (
    <span class={`chip ${tone}`} title={title}>
      {children}
    </span>
  );
}

/** The age of restored state; nothing for other state. */
export function Restored({ restored }: { restored: RestoredDocument | undefined }): VNode | null {
  if (restored === undefined) return null;
  return (
    <span class="chip warn restored" title="Restored from a checkpoint. No source has confirmed it since.">
      restored, as of {timeText(restored.knownAt)}, {durationText(restored.ageSeconds * 1_000)} old
    </span>
  );
}

/** The source of a claim, and its cluster or node. */
export function SourceText({ source, owner }: { source: string; owner?: string | undefined }): VNode {
  return (
    <span class="soft" title={owner === undefined ? source : `${source} ${owner}`}>
      {source}
      {owner !== undefined && <span class="faint"> {owner}</span>}
    </span>
  );
}
