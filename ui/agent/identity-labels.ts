import { useEffect, useState } from 'preact/hooks';
import type { IdentityDocument } from '../../src/api/documents.ts';
import { reservedIdentityName } from '../../src/model/numeric-identity.ts';
import { ask } from './ask.ts';

/** Labels of identities read since the page was opened. */
const KNOWN = new Map<number, Promise<readonly string[]>>();

/** Maximum number of kept identities. */
const MAX_KNOWN = 2_000;

/** Time after which an identity without labels is read again, because the agent may have received them since. */
const UNKNOWN_MS = 10_000;

/** Returns the labels of an identity; empty if they are unknown. */
function labelsOf(identity: number): Promise<readonly string[]> {
  const known = KNOWN.get(identity);
  if (known !== undefined) return known;
  const read = ask<IdentityDocument>(`/v1/identities/${identity}`).then(
    ({ labels }) => labels,
    () => [],
  );
  KNOWN.set(identity, read);
  void read.then((labels) => {
    if (labels.length === 0) setTimeout(() => KNOWN.delete(identity), UNKNOWN_MS);
  });
  const [oldest] = KNOWN.keys();
  if (KNOWN.size > MAX_KNOWN && oldest !== undefined) KNOWN.delete(oldest);
  return read;
}

/** Returns the labels of an identity; empty until they are read. For documents that contain only the number. */
export function useLabels(identity: number): readonly string[] {
  const [labels, setLabels] = useState<readonly string[]>([]);
  useEffect(() => {
    if (reservedIdentityName(identity) !== undefined) return;
    let isShown = true;
    void labelsOf(identity).then((read) => {
      if (isShown) setLabels(read);
    });
    return () => {
      isShown = false;
    };
  }, [identity]);
  return labels;
}
