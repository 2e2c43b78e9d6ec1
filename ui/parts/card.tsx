import type { ComponentChildren, VNode } from 'preact';
import type { PastDocument } from '../../src/api/past-document.ts';
import type { RestoredDocument } from '../../src/api/read-model.ts';
import type { Answered } from '../agent/ask.ts';
import { Changes } from './changes.tsx';
import { Restored } from './marks.tsx';
import { Certainty } from './moment.tsx';
import { Pending, Title } from './panel.tsx';

/** The card of a service or a node: its title, its panels once there is an answer, and its last changes. */
export function Card<
  T extends { readonly restored?: RestoredDocument | undefined; readonly past?: PastDocument | undefined },
>({
  kind,
  name,
  answer: { document, problem },
  children,
}: {
  kind: 'service' | 'node';
  name: string;
  answer: Answered<T>;
  children: (document: T) => ComponentChildren;
}): VNode {
  return (
    <>
      <Title kind={kind} side={<Restored restored={document?.restored} />}>
        {name}
      </Title>
      <Certainty past={document?.past} />
      {document === undefined ? <Pending problem={problem} /> : <div class="grid">{children(document)}</div>}
      <Changes of={name} type={kind} />
    </>
  );
}
