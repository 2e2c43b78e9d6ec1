/**
 * Matches `.` and `..`, which a URL parser removes from a path even if they are percent-encoded, and both with leading
 * `~`.
 */
const DOTS = /^~*\.\.?$/;

/**
 * Returns a name as a URL path. Each part between slashes is encoded; `.` and `..` become `~.` and `~..`. A lone
 * surrogate, which a name of another cluster may contain, becomes U+FFFD, because a URL cannot contain it.
 */
export function namePath(name: string): string {
  return name
    .replace(/\p{Surrogate}/gu, '\ufffd')
    .split('/')
    .map((part) => encodeURIComponent(DOTS.test(part) ? `~${part}` : part))
    .join('/');
}

/** Returns the name of a decoded segment of {@link namePath}. */
export function decodedSegment(segment: string): string {
  return DOTS.test(segment) && segment.startsWith('~') ? segment.slice(1) : segment;
}
