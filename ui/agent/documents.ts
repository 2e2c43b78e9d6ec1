import type { ClaimDocument, ExplanationDocument } from '../../src/api/documents.ts';

/** What an IP is of a service or a node. */
export interface Role {
  readonly kind: 'service' | 'node';
  readonly name: string;
  readonly as: string;
  readonly ports?: readonly string[] | undefined;
  readonly text: string;
}

/** A claim, and where it comes from. */
export interface ClaimWithOrigin extends ClaimDocument {
  readonly origin?: { readonly text: string } | undefined;
}

/** The claims on an IP, and what it belongs to. */
export interface ExplainedIP extends Omit<ExplanationDocument, 'claims' | 'decidedBy'> {
  readonly decidedBy?: ExplanationDocument['decidedBy'] | undefined;
  readonly claims: readonly ClaimWithOrigin[];
  readonly roles?: readonly Role[] | undefined;
}
