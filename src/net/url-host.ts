/** Returns the host of a URL without the brackets of an IPv6 address. */
export function withoutBrackets(host: string): string {
  return host.replace(/^\[(.*)\]$/, '$1');
}

/** Returns the text of a URL without user and password, also if it is not a valid URL. */
export function withoutUser(url: string): string {
  return url.replace(/^([a-z][a-z\d+.-]*:\/\/)?.*@/is, '$1');
}
