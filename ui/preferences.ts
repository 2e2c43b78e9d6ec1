/** The preferences of the page and their values. The first value is the default. */
export const PREFERENCES = {
  /** Distance between rows. */
  density: ['normal', 'compact'],
  /** Colours. `system`: those of the operating system. */
  theme: ['system', 'light', 'dark'],
} as const;

export type Preference = keyof typeof PREFERENCES;
export type PreferenceValue = (typeof PREFERENCES)[Preference][number];

function stored(name: Preference): string | null {
  try {
    return localStorage.getItem(`dpcache-${name}`);
  } catch {
    return null; // the browser may forbid the storage
  }
}

/** Returns the chosen value. */
export function preference(name: Preference): PreferenceValue {
  const values: readonly PreferenceValue[] = PREFERENCES[name];
  return values.find((value) => value === document.documentElement.dataset[name]) ?? PREFERENCES[name][0];
}

/** Chooses a value. */
export function setPreference(name: Preference, value: PreferenceValue): void {
  try {
    localStorage.setItem(`dpcache-${name}`, value);
  } catch {
    // the choice then lasts until the page is closed
  }
  document.documentElement.dataset[name] = value;
}

/** Applies the stored choices. Called before the page is rendered. */
export function applyPreferences(): void {
  for (const name of ['density', 'theme'] as const)
    document.documentElement.dataset[name] = stored(name) ?? PREFERENCES[name][0];
}
