import type { GroupDigest } from '../compare/digest-sums.ts';
import type { ComparedDocument } from '../compare/document-digest.ts';
import type { NodeConfiguration } from '../nodemanager/address-claims.ts';
import type { EntryDocument } from './documents.ts';

/** The digests of the content of an agent, by group. */
export interface DigestDocument {
  readonly version: number;
  readonly cluster: string;
  /** Cluster and name of the node of the agent: `atlantic/node-1`. */
  readonly node: string;
  /** Differs for each start of the agent. */
  readonly instance: string;
  /** The settings that determine the claims of nodes. */
  readonly settings: NodeConfiguration;
  readonly revision: number;
  /** The sum of each group: see {@link GroupDigestDocument}. */
  readonly writers: readonly GroupDigest[];
}

/**
 * The digest of a group, or a part of the digest. A group is the claims of one source and one cluster (`clustermesh
 * baltic`), or the services or nodes of one cluster (`services baltic`).
 */
export interface GroupDigestDocument {
  /** The name of the group. */
  readonly writer: string;
  /** The sum of each of the 256 buckets. */
  readonly buckets?: readonly string[] | undefined;
  /**
   * The sums of the requested buckets by place. A place is the hash of a key as a number of 16 bits; its upper 8 bits
   * are the bucket.
   */
  readonly places?: Readonly<Record<string, string>> | undefined;
  /** The claims at the requested places, from the first place to the one before `next`, without those of `tooMany`. */
  readonly claims?: readonly DigestClaim[] | undefined;
  /** As `claims`, for a group of services or nodes. */
  readonly documents?: readonly DigestItem[] | undefined;
  /**
   * The first requested place that is not in this response, because the limit of the response is reached. Request
   * this place and the following ones again.
   */
  readonly next?: number | undefined;
  /**
   * The first requested place and its number of claims, services or nodes, if those of this place alone exceed the
   * limit. They are not returned.
   */
  readonly tooMany?: { readonly place: number; readonly claims: number } | undefined;
}

/** A service of one cluster, or a node. */
export interface DigestItem extends Pick<ComparedDocument, 'key' | 'fields'> {
  readonly place: number;
}

/** A claim at a requested place. */
export interface DigestClaim
  extends Omit<EntryDocument, 'prefix' | 'labels' | 'source' | 'restored' | 'past'> {
  readonly key: string;
  readonly place: number;
  /** The labels of the identity, if they are known. */
  readonly labels?: string | undefined;
}
