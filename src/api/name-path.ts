/** Returns a name as a URL path; each part between slashes is encoded. */
export function namePath(name: string): string {
  return name.split('/').map(encodeURIComponent).join('/');
}
