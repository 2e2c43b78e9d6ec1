import type { SettingsDocument } from '../api/routes/settings-routes.ts';
import { type Question, table } from './answer.ts';

function valueText(value: unknown): string {
  if (value === null) return '-';
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/** Returns the settings in use, for `dpcache config show`. */
export const askSettings: Question = async (ask, view) => {
  const json = (await ask('/v1/settings')) as SettingsDocument;
  const rows = Object.entries(json.settings).map(([key, { value, from }]) => [key, valueText(value), from]);
  return { json, lines: table([['SETTING', 'VALUE', 'FROM'], ...rows], view), succeeded: true };
};
