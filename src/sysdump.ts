/**
 * The entry `datapath-cache/sysdump`: reads a sysdump or bug report of Cilium, and returns the differences between the
 * tables of each node and the Kubernetes objects in it, and between the nodes. Writes nothing, and connects to nothing.
 */

export { UsageError } from './base/arguments.ts';
export type { Rejection, RejectionStatus } from './base/rejection.ts';
export type { DifferenceKind, ExpectedKind, TableComparisonResult } from './ciliumdump/compare-table.ts';
export type { ArchiveErrorCode, ArchiveLimits } from './sysdump/archive/archive.ts';
export { ArchiveError } from './sysdump/archive/archive.ts';
export type { ExamineOptions, SysdumpReport } from './sysdump/examine.ts';
export { examineSysdump } from './sysdump/examine.ts';
export type { NodeResult } from './sysdump/examine-node.ts';
export type { Finding, FindingKind, LastEvent, TableCounts, TableName } from './sysdump/findings.ts';
