/** What `npm run mutate` does for a room of `src/`. */
export interface Room {
  /** The tests that have to notice a mutant: those of the room itself, not of the rooms above it. */
  readonly tests: readonly string[];
  /** The percentage of mutants that the tests must detect. */
  readonly threshold: number;
}

/** Tests of a folder, without those that are about broken engines: they cannot notice one more. */
function testsOf(folder: string): readonly string[] {
  return [`test/${folder}/!(*mutants).test.ts`];
}

/** The rooms that can be mutated. In `kvstore` the tests over memory count, not those with a real etcd. */
export const ROOMS: Readonly<Record<string, Room>> = {
  identity: { tests: testsOf('identity'), threshold: 90 },
  net: { tests: testsOf('net'), threshold: 90 },
  ipcache: { tests: testsOf('ipcache'), threshold: 90 },
  servicecache: { tests: testsOf('servicecache'), threshold: 90 },
  nodemanager: { tests: testsOf('nodemanager'), threshold: 90 },
  k8s: { tests: testsOf('k8s'), threshold: 85 },
  clustermesh: { tests: testsOf('clustermesh'), threshold: 85 },
  kvstore: { tests: testsOf('kvstore'), threshold: 85 },
};
