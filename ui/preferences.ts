/** Colour theme. `system`: the theme of the operating system. */
export type Theme = 'system' | 'light' | 'dark';

/** Distance between rows. */
export type Density = 'normal' | 'compact';

function stored(name: string): string | null {
  try {
    return localStorage.getItem(`dpcache-${name}`);
  } catch {
    return null; // the browser may forbid the storage
  }
}

function store(name: string, value: string): void {
  try {
    localStorage.setItem(`dpcache-${name}`, value);
  } catch {
    // the choice then lasts until the page is closed
  }
  document.documentElement.dataset[name] = value;
}

/** Returns the chosen theme. */
export function theme(): Theme {
  const value = document.documentElement.dataset['theme'];
  return value === 'light' || value === 'dark' ? value : 'system';
}

/** Returns the chosen density. */
export function density(): Density {
  return document.documentElement.dataset['density'] === 'compact' ? 'compact' : 'normal';
}

/** Chooses a theme. */
export function setTheme(value: Theme): void {
  store('theme', value);
}

/** Chooses a density. */
export function setDensity(value: Density): void {
  store('density', value);
}

/** Applies the stored choices. Called before the page is rendered. */
export function applyPreferences(): void {
  for (const name of ['theme', 'density'])
    document.documentElement.dataset[name] = stored(name) ?? (name === 'theme' ? 'system' : 'normal');
}
