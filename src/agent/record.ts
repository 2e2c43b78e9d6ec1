/** Whether a decoded value is an object and not an array. Its keys are a stranger's: read them with `Object.hasOwn`. */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
