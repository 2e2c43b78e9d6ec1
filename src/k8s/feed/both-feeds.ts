import type { AnyFeed } from './object-feed.ts';

function fieldsOf(first: AnyFeed, second: AnyFeed): readonly string[] | undefined {
  if (first.fields === undefined || second.fields === undefined) return undefined;
  return [...new Set([...first.fields, ...second.fields])];
}

function* inTurn(...parts: readonly Iterable<unknown>[]): Generator<unknown, void, void> {
  for (const steps of parts) yield* steps;
}

/** Returns a feed that passes the objects of one reflector to two feeds. It is complete if both are. */
export function bothFeeds(first: AnyFeed, second: AnyFeed): AnyFeed {
  return {
    get size() {
      return Math.max(first.size, second.size);
    },
    get rejected() {
      return first.rejected + second.rejected;
    },
    get complete() {
      return first.complete && second.complete;
    },
    fields: fieldsOf(first, second),
    start: (onComplete) => {
      const sinks = [first.start(onComplete), second.start(onComplete)];
      return {
        apply: (events) => {
          for (const sink of sinks) sink.apply(events);
        },
        onListed: () => {
          for (const sink of sinks) sink.onListed();
        },
      };
    },
    forgetSteps: () => inTurn(first.forgetSteps(), second.forgetSteps()),
    withdrawSteps: () => inTurn(first.withdrawSteps(), second.withdrawSteps()),
  };
}
