import type { Mutant } from './mutant.ts';

/** Mutants of one symbol that no test can detect, because they compute the same results. */
export interface Equivalent {
  readonly file: string;
  /** The function, class member or constant, such as `WorkQueue.#run`. */
  readonly symbol: string;
  /** The operators before and after, with `_` for each name. */
  readonly changes: readonly string[];
  readonly reason: string;
}

/** Identifies a mutant without line numbers and without names of values, because both change too often. */
export function keyOf({ file, symbol, change }: Pick<Mutant, 'file' | 'symbol' | 'change'>): string {
  return `${file}: ${symbol}: ${change}`;
}

/** Returns the keys of all listed mutants. */
export function keysOf(equivalents: readonly Equivalent[]): ReadonlySet<string> {
  return new Set(
    equivalents.flatMap(({ changes, ...place }) => changes.map((change) => keyOf({ ...place, change }))),
  );
}

type EquivalentOfFile = readonly [symbol: string, changes: readonly string[], reason: string];

const BY_FILE: Readonly<Record<string, readonly EquivalentOfFile[]>> = {
  'src/clustermesh/config-follower.ts': [
    ['ConfigFollower.#isScanning', ['false → true'], 'overwritten before the first read'],
    ['ConfigFollower.#hasChanged', ['false → true'], 'overwritten before the first read'],
    ['ConfigFollower.#scanIn', ['_ <= _ → _ < _'], 'sets the timer again, for the same time'],
  ],
  'src/clustermesh/followed-cluster.ts': [
    ['FollowedCluster.#inputs', ['[] → ["Stryker was here"]'], 'a text is no input and is ignored'],
    ['FollowedCluster.#isComplete', ['false → true'], 'overwritten by the first phase'],
    [
      'FollowedCluster.#step',
      ['_ !== undefined → true'],
      'a failure always has a message; only the type requires the condition',
    ],
    [
      'FollowedCluster.#createClient',
      ['_?.(_) → _(_)'],
      'a client is created only after the configuration is known; only the type requires the condition',
    ],
    [
      'FollowedCluster.#createClient',
      ['_?._ → _'],
      'the client was just created; only the type requires the condition',
    ],
    [
      'FollowedCluster.#onReaderState',
      ['_ !== undefined → true'],
      'a waiting cluster always has a failure; only the type requires the condition',
    ],
    ['FollowedCluster.#watchExpiry', ['!_ → true'], 'the timer does nothing if the services have expired'],
    ['FollowedCluster.#client', ['_ !== undefined → true'], 'the condition is always true here'],
    ['FollowedCluster.#readParams', ['_ !== undefined → true'], 'the condition is always true here'],
  ],
  'src/model/labels.ts': [['sortLabels', ['_ < _ → _ <= _'], 'two keys of a map are never equal']],
  'src/model/source.ts': [['compareWriters', ['_ < _ → _ <= _'], 'equal owners return earlier']],
  'src/ipcache/change-journal.ts': [
    ['ChangeJournal.willChange', ['_ === undefined → false'], 'called only in batches'],
    [
      'ChangeJournal.visibleChanged',
      ['!_ && _ === undefined → false'],
      'records a change that no listener receives',
    ],
    [
      'ChangeJournal.visibleChanged',
      ['_ === undefined → true'],
      'compares texts instead of numbers, with the same result',
    ],
    ['ChangeJournal.batch', ['_ → false'], 'compares texts instead of numbers, with the same result'],
    ['ChangeJournal.takeChanges', ['_ === 0 → false'], 'no changes have no net effect'],
    [
      'ChangeJournal.takeChanges',
      ['_ === 1 || _ → false', '_ === 1 || _ → _ === 1 && _', '_ === 1 → false'],
      'compares texts instead of numbers, with the same result',
    ],
    ['ChangeJournal.takeOwnerChanges', ['_ === 0 → false'], 'no changes have no net effect'],
    ['ChangeJournal.takeOwnerChanges', ['_ === 1 → false'], 'the net effect of one change is this change'],
    ['ChangeJournal.batch', ['true → false'], 'compares texts instead of numbers, with the same result'],
    ['ChangeJournal.#noteHash', ['_(_) → true'], 'compares texts instead of numbers, with the same result'],
    ['ChangeJournal.batch', ['[] → ["Stryker was here"]'], 'only changes after the mark are read'],
  ],
  'src/ipcache/claims/claim-state.ts': [
    [
      'isFullLengthCIDR',
      ["_ === 'cidr' && _(_) → true", "_ === 'cidr' && _(_) → _ === 'cidr' || _(_)", "_ === 'cidr' → true"],
      'counts too many full-length CIDRs, so a search for a counterpart finds none',
    ],
    [
      'ClaimState.counterpart',
      ["_ === 'endpoint' && _ === 0 → false", '\'endpoint\' → ""'],
      'searches for a counterpart that does not exist',
    ],
    [
      'ClaimState.#appear',
      ['_(_) → true'],
      'counts too many full-length CIDRs, so a search for a counterpart finds none',
    ],
    ['ClaimState.#appear', ['_++ → _--'], 'the count is not 0 in both cases while there is a CIDR'],
    [
      'ClaimState.#disappear',
      ['_(_) → false', '_-- → _++'],
      'counts too many full-length CIDRs, so a search for a counterpart finds none',
    ],
    ['ClaimState.#appear', ['_ > _ → _ >= _'], 'assigns the same value'],
    ['ClaimState.#willChange', ['_ → true'], 'outside of a batch the journal stores nothing'],
    ['ClaimState.#contest', ['_(_, _) < 0 → _(_, _) <= 0'], 'two writers of a key are never equal'],
    ['ClaimState.#entryChanged', ['_(_, _) → false'], 'removes and adds the same entry'],
  ],
  'src/ipcache/row-reader.ts': [
    [
      'RowReader.holdsSame',
      ['_ + _ → _ - _'],
      'the identity is word 0 of a row, and adding 0 equals subtracting 0',
    ],
    [
      'RowReader.entry',
      ['_ + _ → _ - _'],
      'the identity is word 0 of a row, and adding 0 equals subtracting 0',
    ],
    [
      'RowReader.claim',
      ['_ + _ → _ - _'],
      'the identity is word 0 of a row, and adding 0 equals subtracting 0',
    ],
  ],
  'src/ipcache/row-store.ts': [
    [
      'RowStore.fill',
      ['_ + _ → _ - _'],
      'the identity is word 0 of a row, and adding 0 equals subtracting 0',
    ],
    [
      'RowStore.update',
      ['_ + _ → _ - _'],
      'the identity is word 0 of a row, and adding 0 equals subtracting 0',
    ],
    [
      'RowStore.hasAttributes',
      ['_ + _ → _ - _'],
      'the identity is word 0 of a row, and adding 0 equals subtracting 0',
    ],
  ],
  'src/k8s/reflector/reflector-machine.ts': [
    ['INITIAL', ['\'list\' → ""'], 'overwritten before the first wait'],
    ['INITIAL', ['false → true'], 'overwritten by the first list, and not read before'],
    ['waitStep', ['\'waiting\' → ""'], 'no code compares the phase with this one'],
  ],
  'src/kvstore/codec/bytes.ts': [
    ['bytesOfKey', ['!_(_) → false'], 'encodes the same bytes character by character; affects only the time'],
    [
      'textOfBytes',
      ['\'\\ufffd\' → ""'],
      'checks all bytes, also without a replacement character; affects only the time',
    ],
    [
      'equalBytes',
      ['_ === _ → false'],
      'the same object also compares as equal byte by byte; affects only the time',
    ],
    [
      'equalBytes',
      ['_ === _ → true'],
      'bytes of different lengths also compare as different; affects only the time',
    ],
    ['escapedText', ['_ < _ → _ <= _'], 'the text after the end is empty'],
    ['bytesOfKey', ['_ - _ → _ + _'], 'a byte stores the lowest bits, which are the same'],
  ],
  'src/kvstore/session/lock-keeper.ts': [
    [
      'LockKeeper.#waitForDelete',
      ['\'abort\' → ""'],
      'the signal belongs to this call alone; affects only memory',
    ],
    [
      'LockKeeper.#deleteEntry',
      ['{if (_(_) === _) _(_);} → {}', '_(_) === _ → false'],
      'no caller waits for an ended delete; affects only memory',
    ],
    ['lastBefore', ['_ > (_?._?? 0) → _ >= (_?._?? 0)'], 'no two entries have the same revision'],
  ],
  'src/kvstore/memory/memory-server.ts': [
    ['MemoryServer.grantLease', ['++_ → --_'], 'ids are also unique if they are counted downwards'],
  ],
  'src/kvstore/memory/memory-transport.ts': [
    [
      'MemoryTransport.watch',
      ['() => _(_) → () => undefined'],
      'a second end of a stream has no effect; affects only memory',
    ],
  ],
  'src/kvstore/memory/memory-watch-stream.ts': [
    [
      'MemoryWatchStream.wake',
      ['_ || !_ → false', '_ || !_ → _ && !_', 'true → false'],
      'one more delivery finds no event',
    ],
  ],
  'src/kvstore/stores/batch-slices.ts': [
    ['slicesOf', ['_ === 0 → false'], 'returns a copy of the batch instead of the batch'],
  ],
  'src/kvstore/stores/canary.ts': [
    ['Canary.write', ['{_ = undefined;} → {}'], 'the cancellation of an ended write has no effect'],
  ],
  'src/kvstore/watch/last-deletes.ts': [
    [
      'LastDeletes.#deletes',
      ['[] → ["Stryker was here"]'],
      'the added text counts as a delete at revision 0, which is never requested and dropped first',
    ],
    [
      'LastDeletes.add',
      ['_()?._ → _()._'],
      'there are nine deletes at this moment; only the type requires the fallback',
    ],
    [
      'LastDeletes.restart',
      ['[] → ["Stryker was here"]'],
      'the added text counts as a delete at revision 0, which is never requested and dropped first',
    ],
  ],
  'src/kvstore/watch/list-and-watch.ts': [
    ['ListAndWatch.#mustSync', ['false → true'], 'before the first list no stream can resume'],
    [
      'ListAndWatch.#sync',
      ['\'revisions\' → ""'],
      'any word except `count` and `values` selects the revisions',
    ],
  ],
  'src/net/address-words.ts': [['wordMask', ['_ >= 32 → _ > 32'], 'a shift by 0 also returns -1']],
  'src/net/fields.ts': [
    ['Fields.constructor', ['\'\' → "Stryker was here!"'], 'the name of the root is never read'],
    ['Fields.map', ['_ === _ → false'], 'no map has more names than the limit, so they are only counted'],
    [
      'parseJson',
      ['{return undefined;} → {}'],
      'a function without a return statement also returns undefined',
    ],
  ],
  'src/net/format-address.ts': [
    ['codes', ['[] → ["Stryker was here"]'], 'every element is written before it is read'],
    ['longestZeroRun', ['_ < 8 → _ <= 8'], 'there is no zero group after the last group'],
  ],
  'src/lpm/hash-prefix-table.ts': [
    ['HashPrefixTable.prefetch', ['_ < _ → _ <= _'], 'prefetches other memory; affects only the time'],
    ['spaceFamily', ['_ === 6 → _ !== 6'], 'the families only need different numbers'],
    [
      'HashPrefixTable.longestMatch',
      ['_(_ + 1) > 0 → true', '_(_ + 1) > 0 → _(_ + 1) >= 0', '_(_) > 0 → true', '_(_) > 0 → _(_) >= 0'],
      'the lookup that the count avoids finds no key',
    ],
    ['HashPrefixTable.slots', ['_ < _ → _ <= _'], 'no slot after the last one is in use'],
  ],
  'src/lpm/key-hash.ts': [
    [
      'KeyHash.prefetch',
      ['_ < _ → false', '_ < _ → _ <= _'],
      'prefetches other memory; affects only the time',
    ],
    ['KeyHash.#holds', ['_[_] === _ → true'], 'two keys with the same tag never differ only in this word'],
    [
      'KeyHash.#link',
      ['(_[_]?? 0) >= _ → (_[_]?? 0) > _'],
      'the limit of a segment is not a whole number of buckets',
    ],
    [
      'KeyHash.#makeRoom',
      ['_ >= _ / 2 → _ > _ / 2'],
      'half of a full segment is not a whole number of buckets',
    ],
    [
      'KeyHash.#readAddresses',
      ['_ >>> _ < _ → false'],
      'reads the address from the key instead of the bucket; affects only the time',
    ],
  ],
  'src/lpm/stride-sets.ts': [
    [
      'StrideSets.longest',
      ['_ <= _ → true'],
      'the shift then results in 0, and the set of a prefix is never 0',
    ],
  ],
  'src/net/parse-address.ts': [
    [
      'scanGroups',
      ['_ < _ → _ <= _'],
      'a slash or the end follows, and neither is a digit; a read after the end of a text is only slow',
    ],
    [
      'scanGroups',
      ['_ < _ → true', '_ < _ → _ <= _'],
      'a slash or the end follows, and neither is a dot; a read after the end of a text is only slow',
    ],
  ],
  'src/net/port.ts': [
    ['samePorts', ['_ === _ → false'], 'an object is equal to itself; affects only the time'],
  ],
  'src/net/prefix.ts': [
    ['parsePrefix', ['_ < 0 → _ <= 0'], 'an IPv4 address has at least seven characters'],
    ['parseIPv6Prefix', ['_ < 0 → _ <= 0'], 'a text that begins with a slash is rejected in both cases'],
    [
      'formatKeyOf',
      ["_ === 'endpoint' && _ === 0 && _(_, _) → false", '\'endpoint\' → ""'],
      'formatting returns the same text; affects only the time',
    ],
    [
      'formatPrefixOf',
      ["_ === 'endpoint' && _ !== '' && _(_, _) → false", '\'endpoint\' → ""'],
      'formatting returns the same text; affects only the time',
    ],
  ],
  'src/lpm/segment-directory.ts': [
    ['SegmentDirectory.#shared', ['false → true'], 'copies nodes that are not shared; affects only the time'],
    [
      'SegmentDirectory.constructor',
      ['{_, _: 0, _: 0, _: 0, _: 0} → {}'],
      'without common octets a lookup starts at the root; affects only the time',
    ],
    [
      'SegmentDirectory.at',
      ['_ > 4 → true', '_ > 4 → _ >= 4'],
      'the code for IPv6 finds the same for IPv4; affects only the time',
    ],
    ['SegmentDirectory.at', ['_ > 0 → _ >= 0'], 'an entry is 0 only while all entries are 0'],
    [
      'SegmentDirectory.#findStart',
      ['{_ = 0; _ = 0; for (let _ = _(0); _ >= 0; _ = _(… → {}', '_ >= 0 → false', '_ >= 0 → _ > 0'],
      'a lookup that starts nearer to the root finds the same; affects only the time',
    ],
    [
      'SegmentDirectory.#onlyChild',
      [
        '{let _ = -1; for (let _ = 0; _ < _; _++) {if ((_… → {}',
        '_ < _ → false',
        '_ < _ → _ <= _',
        '_ < _ → _ >= _',
        '{if ((_[_ + _]?? 0) <= 0) continue; if (_ >= 0) … → {}',
        '(_[_ + _]?? 0) <= 0 → true',
        '(_[_ + _]?? 0) <= 0 → false',
        '(_[_ + _]?? 0) <= 0 → (_[_ + _]?? 0) < 0',
        '(_[_ + _]?? 0) <= 0 → (_[_ + _]?? 0) > 0',
        '_[_ + _]?? 0 → _[_ + _] && 0',
        '_ + _ → _ - _',
        '_ >= 0 → true',
        '_ >= 0 → false',
        '_ >= 0 → _ > 0',
        '_ >= 0 → _ < 0',
      ],
      'a lookup that starts nearer to the root finds the same; affects only the time',
    ],
    [
      'SegmentDirectory.#bestOctet',
      ['_ < _ → false', '_ < _ → _ <= _', '_ < _ → _ >= _'],
      'a lookup that starts nearer to the root finds the same; affects only the time',
    ],
    [
      'SegmentDirectory.within',
      ['8 * (_ + 1) <= _ → 8 * (_ + 1) < _'],
      'iterates over the entries of the octet instead of its node',
    ],
    ['SegmentDirectory.within', ['_ <= 0 → _ < 0'], 'an entry is 0 only while all entries are 0'],
    [
      'SegmentDirectory.#cut',
      ['_ < _ → false'],
      'visits the common octets one by one; affects only the time',
    ],
    [
      'SegmentDirectory.#cut',
      ['_[_] !== _ → true'],
      'moves all addresses to where they are; affects only the time',
    ],
    [
      'SegmentDirectory.#onlyChild',
      ['_ < _ → _ <= _'],
      'after the last octet no split is better than the earlier ones',
    ],
    [
      'SegmentDirectory.#bestOctet',
      ['_ < _ → _ <= _'],
      'after the last octet no split is better than the earlier ones',
    ],
    [
      'SegmentDirectory.#bestOctet',
      ['_ > 0 → true', '_ > 0 → _ >= 0'],
      'before the first octet the split is as bad as at the level above',
    ],
    [
      'SegmentDirectory.#bestOctet',
      ['2 * _ <= _ → 2 * _ < _'],
      'if the parts are equal, the keys are split at a higher level',
    ],
    ['SegmentDirectory.#nodeBelow', ['_ > 0 → _ >= 0'], 'an entry is 0 only while all entries are 0'],
    [
      'SegmentDirectory.#nodeBelow',
      ['_ > 4 → true', '_ > 4 → false', '_ > 4 → _ >= 4', '_ > 4 → _ <= 4'],
      'changes only where a lookup of IPv6 starts; affects only the time',
    ],
    [
      'SegmentDirectory.#unshare',
      ['_ → true', 'false → true'],
      'copies nodes that are not shared; affects only the time',
    ],
    [
      'SegmentDirectory.#replace',
      ['_ <= 0 → _ < 0', '!_(_, 0, _, _) → _(_, 0, _, _)', 'false → true'],
      'the replaced entries are contiguous, so the search continues without a result',
    ],
    [
      'commonOctets',
      [
        '{for (let _ = 0; _ < 4; _++) {let _ = 0; for (le… → {}',
        '_ < 4 → false',
        '_ < 4 → _ >= 4',
        '_++ → _--',
        '{let _ = 0; for (let _ = 1; _ < _; _++) _ |= (_[… → {}',
        '_ < _ → false',
        '_ < _ → _ <= _',
        '_ < _ → _ >= _',
        '_ |= (_[4 * _ + _]?? 0) ^ (_[_]?? 0) → _ &= (_[4 * _ + _]?? 0) ^ (_[_]?? 0)',
        '_ !== 0 → false',
        '4 * _ + (_(_) >>> 3) → 4 * _ - (_(_) >>> 3)',
      ],
      'visits some common octets one by one; affects only the time',
    ],
    ['keepOctet', ['_ < 4 → _ <= 4'], 'the word is overwritten when the next address is moved'],
  ],
  'src/lpm/stem-index.ts': [
    [
      'IPv4Stems.longest',
      ['((_[_ + _]?? 0) & _(_)) !== 0 → true'],
      'the read that the bit avoids finds no prefix',
    ],
    ['IPv4Stems.longest', ['_ >= 0 → _ > 0'], 'only the first stem of IPv6 is in its own set'],
    ['IPv4Stems.adjust', ['_ <= _ → _ < _'], 'the set of a root may also contain its stem'],
    ['IPv4Stems.#hasDeeper', ['_(_) !== 0 → true'], 'the read that the bit avoids finds no prefix'],
    [
      'IPv6Stems.longest',
      ['_ >= _? (_ & (1 << (_ - _))) === 0: _[_] === 0 → false'],
      'the read that guide and count avoid finds no prefix',
    ],
    [
      'IPv6Stems.longest',
      ['(_ & (1 << (_ - _))) === 0 → false'],
      'the read that the guide avoids finds no prefix',
    ],
    ['IPv6Stems.longest', ['_[_] === 0 → false'], 'the read that the count avoids finds no prefix'],
    [
      'IPv6Stems.longest',
      ['_ >= _ → _ > _'],
      'the count of a level is correct, but less exact than the guide',
    ],
    [
      'IPv6Stems.adjust',
      ['(_[_]?? 0) + _ → (_[_]?? 0) - _'],
      'the count is 0 only while there are no prefixes',
    ],
    ['IPv6Stems.adjust', ['_ > 0 → _ >= 0'], 'the value is always 1 or -1'],
    [
      'IPv6Stems.adjust',
      ['_ + _ > 0 → true', '_ + _ > 0 → _ + _ >= 0'],
      'a count of 0 means the same as no count',
    ],
  ],
  'src/nodemanager/address-claims.ts': [
    [
      'NodeClaims.#positionOf',
      ['_ > _ → true', '_ > _ → false', '_ > _ → _ >= _', '_ > _ → _ <= _'],
      'a scan and the index find the same; affects only the time',
    ],
    ['NodeClaims.#positionOf', ['_ < _ → _ <= _'], 'there is no claim after the last one'],
    ['NodeClaims.#positionOf', ['_[_]?._ → _[_]._'], 'each index below the length has a claim'],
  ],
  'src/nodemanager/handler-feed.ts': [
    ['HandlerFeed.change', ['_ === 0 → false'], 'an empty map has no lane; affects only the time'],
  ],
  'src/nodemanager/node-addresses.ts': [
    [
      'NodeAddresses.#reclaim',
      ['[] → ["Stryker was here"]', '_ === undefined → false'],
      'only nodes that claim the address are visited; only the type requires the fallback',
    ],
    [
      'NodeAddresses.#ownerChanges',
      ['[] → ["Stryker was here"]'],
      'the added text has no key and no writers, so it affects no node',
    ],
    ['NodeAddresses.updateAll', ['_ !== _ → true'], 'computes the same claims again; affects only the time'],
    ['NodeAddresses.mayRefresh', ['_ || _ !== undefined → true'], 'writes the same value again'],
    [
      'NodeAddresses.isHeldBack',
      ['[] → ["Stryker was here"]'],
      'the added text is no address, so no node claims it',
    ],
    [
      'NodeAddresses.close',
      ['[] → ["Stryker was here"]'],
      'the added text has no key and no writers, so it affects no node',
    ],
    [
      'NodeAddresses.#review',
      ['[] → ["Stryker was here"]'],
      'the added text has no key and no writers, so it affects no node',
    ],
    [
      'NodeAddresses.#lostAddress',
      ['_ === undefined → false'],
      'a node that has lost an address has a claim; only the type requires the fallback',
    ],
    ['NodeAddresses.#replace', ['_ > 0 → true', '_ > 0 → _ >= 0'], 'makes the same writes, as one batch'],
    [
      'NodeAddresses.#replace',
      ['!_(_, _, _(_)) → true', '_++ → _--'],
      'writes the same value again; the comparison affects only the time',
    ],
    [
      'NodeAddresses.#isUnchanged',
      [
        '{return (_ !== undefined && !_ && _(_) && _?._(_… → {}',
        '_ !== undefined && !_ && _(_) && _?._(_) !== tru… → false',
      ],
      'writes the same value again; the comparison affects only the time',
    ],
    [
      'NodeAddresses.claimsOf',
      ['_ === _ → false', '_ !== undefined → false'],
      'stored and newly computed claims are equal',
    ],
    [
      'NodeAddresses.claimsOf',
      [
        '_ > _ && _ === _ → true',
        '_ > _ && _ === _ → false',
        '_ > _ && _ === _ → _ > _ || _ === _',
        '_ > _ → true',
        '_ > _ → _ >= _',
        '_ > _ → _ <= _',
        '_ === _ → true',
        '_ === _ → _ !== _',
      ],
      'stored and newly computed claims are equal, and a change of the configuration removes all stored ones',
    ],
    [
      'NodeAddresses.#setLost',
      ['_?.delete → _', '_?._ → _'],
      'a node that has lost an address is in the set of its losers',
    ],
    ['NodeAddresses.#setLost', ['_?._ === 0 → false'], 'keeps an empty set; affects only memory'],
    [
      'NodeAddresses.#reviewAddress',
      ['_(_, _) !== undefined → true'],
      'a node that does not claim the address cannot lose it',
    ],
    ['NodeAddresses.#reviewAddress', ['_ === 0 → false'], 'no node is visited'],
    [
      'NodeAddresses.#reclaim',
      ['_ !== undefined && !_ → false'],
      'an IPCache that keeps overruled claims has these claims',
    ],
    ['NodeAddresses.#reclaim', ['_ === 0 → false'], 'an empty batch writes nothing'],
  ],
  'src/nodemanager/node-entry.ts': [
    ['NodeEntry.put', ['_ === _ → false'], 'a new ranking returns the same position; affects only the time'],
    ['NodeEntry.remove', ['_ === 0 → false'], 'the ranking of no claims returns none; affects only the time'],
  ],
  'src/nodemanager/node-spec.ts': [
    ['sameAddresses', ['_[_]?._ → _[_]._'], 'the index is below both lengths'],
    [
      'sameAddresses',
      ['_ < _ → _ <= _'],
      'after the end of both lists the elements are undefined, and so equal',
    ],
    [
      'sameStringLists',
      ['_ < _ → _ <= _'],
      'after the end of both lists the elements are undefined, and so equal',
    ],
    ['sameStringMaps', ['_ === _ → false'], 'a map is equal to itself; affects only the time'],
    ['sameStringMaps', ['_ === 0 → false'], 'the loop over no entries returns the same'],
  ],
  'src/nodemanager/node-table.ts': [
    ['NodeTable.remove', ['_ === 0 → false'], 'keeps an empty map; affects only memory'],
  ],
  'src/nodemanager/node.ts': [
    ['Node.equals', ['_ === _ → false'], 'a node is equal to itself; affects only the time'],
  ],
  'src/nodemanager/parse-node.ts': [
    ['addressesOf', ['_(_, _) → false', '_(_) → false'], 'reads the same addresses into another list'],
    ['addressOf', ['_[_] === undefined → false'], 'an absent field is also read as absent'],
    ['cidrOf', ['_[_] === undefined → false'], 'an absent field is also read as absent'],
    ['cidrsOf', ['_(_) && _ === 0 → false'], 'an empty list is equal to the shared one'],
    [
      'isCanonical',
      [
        '{if (!_(_)) return false; const {_, _} = _; retu… → {}',
        '!_(_) → true',
        "typeof _ === 'string' && _ !== '' && typeof _ ==… → false",
        '\'string\' → ""',
      ],
      'reads the same addresses into another list',
    ],
    ['stringsOf', ['_ === 0 → false'], 'an empty map is equal to the shared one'],
  ],
  'src/restore/checkpoint-file.ts': [
    ['checkedHeader', ['_ === undefined → false'], 'without a header there is no section, and so no end'],
    [
      'FileBytes.#fill',
      ['_ >= _ → false', '_ >= _ → _ > _'],
      'reads more, and copies the rest; affects only the time',
    ],
  ],
  'src/restore/checkpoint.ts': [
    [
      'checkpointSections',
      ['\'/\' → ""'],
      'each full name contains a slash; the condition only avoids a lookup',
    ],
  ],
  'src/restore/cilium-endpoint.ts': [
    ['labelOfText', ['_ < 0 → _ <= 0'], 'the text before the first character is empty'],
  ],
  'src/restore/entry-codec.ts': [
    ['readEntry', ['\'cidr\' → ""'], 'any form except `endpoint` is formatted as a CIDR'],
  ],
  'src/restore/ipam.ts': [
    [
      'IPAM.release',
      ['_ === undefined → false'],
      'an unknown pool has no users; only the type requires the condition',
    ],
    [
      'IPAM.ownerOf',
      ['_ === undefined → false'],
      'an invalid address has no users; only the type requires the condition',
    ],
    [
      'addressOf',
      ['_ === undefined → false'],
      'undefined is no prefix; only the type requires the condition',
    ],
  ],
  'src/restore/restoration.ts': [
    [
      'Restoration.#release',
      ['[] → ["Stryker was here"]'],
      'there is no node with the name of the added text',
    ],
    [
      'Restoration.#recordNode',
      ['[] → ["Stryker was here"]'],
      'there is no node with the name of the added text',
    ],
    [
      'Restoration.#restoreNode',
      [
        "typeof _ === 'string' && typeof _ === 'string' → true",
        "typeof _ === 'string' && typeof _ === 'string' → typeof _ === 'string' || typeof _ === 'string'",
        "typeof _ === 'string' → true",
      ],
      'a recorded node has both texts; only the type requires the condition',
    ],
  ],
  'src/restore/router-addresses.ts': [
    ['findAddress', ['\'\' → "Stryker was here!"'], 'neither text is a number'],
    ['findAddress', ['[] → ["Stryker was here"]'], 'the list has no second element in both cases'],
    [
      'bytesOf',
      ['/^0x[0-9a-_]{1,8}_/_ → /0x[0-9a-_]{1,8}_/_'],
      '`Number` also rejects a text with other characters before',
    ],
    ['bytesOf', ['[] → ["Stryker was here"]'], 'one element is no address in both cases'],
  ],
  'src/servicecache/announcement.ts': [
    ['eventBetween', ['_ === undefined → false'], 'both are undefined then, and so equal'],
    ['shareAnnounced', ['_ === undefined → false'], 'an absent state is also not announced'],
  ],
  'src/servicecache/backend.ts': [
    ['backendComparison', ['_ === _ → false'], 'an object is equal to itself; affects only the time'],
    ['equalBackends', ['_ === _ → false'], 'an object is equal to itself; affects only the time'],
    ['equalButPorts', ['_ === _ → false'], 'an object is equal to itself; affects only the time'],
    ['backendComparison', ['false → true'], 'overwritten before it is read'],
    ['backendComparison', ['_ !== _ || _ !== _ → true'], 'compares the same ports again'],
  ],
  'src/servicecache/remote-backends.ts': [
    ['isSameBackend', ['_ === 0 → false'], 'compares two empty sets'],
    ['remoteBackends', ['_ === 0 → false'], 'creates an equal empty set'],
  ],
  'src/servicecache/origin-index.ts': [
    ['compareOrigins', ['_ < _ → _ <= _'], 'equal origins are distinguished earlier'],
  ],
  'src/servicecache/correlation.ts': [
    ['SideDraft.replace', ['_ !== undefined → true'], 'deletes a key that does not exist'],
    [
      'Correlator.#replaceClaim',
      ['_ === undefined → false'],
      'a contested address has a winner; only the type requires the condition',
    ],
    ['applyOriginChange', ['_ === _ → false'], 'finds no difference; affects only the time'],
    [
      'applyOriginChange',
      ['_ === _ && _ === 0 → false', '_ && _ === undefined && _(_) → false'],
      'computes the same result in more steps',
    ],
    [
      'applyOriginChange',
      ['_ !== undefined → true'],
      'one of the two exists; only the type requires the condition',
    ],
  ],
  'src/servicecache/offer-difference.ts': [
    ['isImmutable', ['{return _(_);} → {}'], 'computes the same result in more steps'],
    [
      'OrderedMatcher.take',
      ['_?._ === _ → false', '{_(); return _;} → {}'],
      'finds the element among the remaining ones; affects only the time',
    ],
    ['OrderedMatcher.take', ['_ !== undefined → true'], 'deletes a key that does not exist'],
    ['OrderedMatcher.take', ['_?.delete → _'], 'the element was found in this map'],
    ['OrderedMatcher.#advance', ['_ === true → false'], 'an iterator that is done returns no value'],
    ['equalBackendMaps', ['_ === _ → false'], 'an object is equal to itself; affects only the time'],
    ['equalBackendMaps', ['_ === _ → true'], 'an address that one of them lacks is a difference'],
    ['equalBackendMaps', ['() => false → () => undefined'], 'false and undefined both stop the iteration'],
    ['shareSlice', ['_ === _ → false'], 'the comparison finds it equal to itself'],
  ],
  'src/servicecache/frontend-index.ts': [
    ['FrontendIndex.update', ['_ === _ → false'], 'removes and adds the same frontends'],
    ['FrontendIndex.#remove', ['_?._ === 0 → false'], 'keeps an empty map; affects only memory'],
    ['FrontendIndex.#removeEffective', ['_?._ === 0 → false'], 'keeps an empty set; affects only memory'],
  ],
  'src/servicecache/service-cache.ts': [
    [
      'ServiceCache.updateService',
      ['_?._ !== undefined && _(_, _) → false'],
      'the later comparison finds it equal',
    ],
    ['NODE_PORTS_OFF', ['{_: false} → {}'], 'an omitted option is false'],
  ],
  'src/servicecache/service-state.ts': [
    ['withAnnounced', ['_ === _ → false'], 'creates an equal state'],
    ['offeredBySlice', ['_ === 0 → false'], 'merges with an empty map'],
    [
      'withService',
      [
        '(_?._?? false) !== (_?._?? false) && _ > 0 → true',
        '(_?._?? false) !== (_?._?? false) && _ > 0 → (_?._?? false) !== (_?._?? false) || _ > 0',
        '(_?._?? false) !== (_?._?? false) → true',
        'false → true',
        '_ > 0 → true',
        '_ > 0 → _ >= 0',
        '!_ && !_ && !_ → false',
      ],
      'removes and adds the same inputs',
    ],
  ],
  'src/servicecache/service-stream.ts': [
    ['areEqual', ['_ === _ → false'], 'two states that are not announced are compared earlier'],
    ['ServiceStream.#settle', ['_ === undefined → false'], 'deletes a key that does not exist'],
    ['ServiceStream.#deliver', ['_ === undefined → false'], 'keeps an undefined value; affects only memory'],
  ],
  'src/servicecache/service-table.ts': [
    ['ServiceTable.markSynced', ['_ → false'], 'announces announced services again, without an event'],
    [
      'ServiceTable.#commit',
      [
        '_ !== undefined && _ !== _ → true',
        '_ !== undefined && _ !== _ → _ !== undefined || _ !== _',
        '_ !== _ → true',
      ],
      'writes the same value again',
    ],
    ['ServiceTable.#commit', ['_ !== undefined → true'], 'without a state nothing is shared'],
  ],
  'src/servicecache/service.ts': [
    ['equalServicePorts', ['_ === _ → false'], 'an object is equal to itself; affects only the time'],
    ['equalAddresses', ['_ === _ → false'], 'an object is equal to itself; affects only the time'],
    ['equalLists', ['_ === _ → false'], 'an object is equal to itself; affects only the time'],
    ['equalTexts', ['_ === _ → false'], 'an object is equal to itself; affects only the time'],
    [
      'equalLists',
      ['_ < _ → _ <= _'],
      'after the end of both lists the elements are undefined, and so equal',
    ],
    ['equalServices', ['_ === _ → false'], 'an object is equal to itself; affects only the time'],
  ],
};

export const EQUIVALENTS: readonly Equivalent[] = Object.entries(BY_FILE).flatMap(([file, equivalents]) =>
  equivalents.map(([symbol, changes, reason]) => ({ file, symbol, changes, reason })),
);
