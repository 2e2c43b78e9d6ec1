import { useEffect, useRef, useState } from 'preact/hooks';
import { useFeed } from './live.ts';

/** Returns the tag of the script that the agent serves; undefined if it does not answer, or serves none. */
async function servedVersion(): Promise<string | undefined> {
  const answer = await fetch('page.js', { method: 'HEAD', cache: 'no-store' }).catch(() => undefined);
  return answer?.headers.get('etag') ?? undefined;
}

/**
 * Returns true if the agent serves another version of the page than when the page was opened, because it was replaced.
 * Compares the versions after each reconnect.
 */
export function useIsOutdated(): boolean {
  const isLive = useFeed().connection === 'live';
  const opened = useRef<string>();
  const [isOutdated, setOutdated] = useState(false);
  useEffect(() => {
    if (!isLive) return;
    void servedVersion().then((version) => {
      opened.current ??= version;
      if (version !== undefined) setOutdated(version !== opened.current);
    });
  }, [isLive]);
  return isOutdated;
}
