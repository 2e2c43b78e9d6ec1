import type { SettingsDocument } from '../api/routes/settings-routes.ts';
import { type Question, table } from './answer.ts';

/** Returns the settings that a process uses, for `dpcache config show`. */
export const askSettings: Question = async (ask, view) => {
  const json = (await ask('/v1/settings')) as SettingsDocument; // a process of the same version sent it
  const rows = Object.entries(json.settings).map(([key, { value, from }]) => [
    key,
    typeof value === 'string' ? value : value === null ? '-' : JSON.stringify(value),
    from,
  ]);
  return { json, lines: table([['SETTING', 'VALUE', 'FROM'], ...rows], view), found: true };
};
