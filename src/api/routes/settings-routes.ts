import { createRoute, z } from '@hono/zod-openapi';
import type { ApiApp } from '../api-context.ts';
import { ProblemError } from '../problem.ts';
import { answerJSON } from './answer.ts';
import { answers } from './route-parts.ts';

const ORIGINS = ['flag', 'environment', 'file', 'default'] as const;

export interface SettingDocument {
  /** As parsed: durations in milliseconds, sizes in bytes; null if the setting has no value. */
  readonly value: unknown;
  readonly from: (typeof ORIGINS)[number];
}

/** The settings that a process uses, without secrets. */
export interface SettingsDocument {
  readonly file?: string | undefined;
  /** By key of the file: `log-level`. */
  readonly settings: Readonly<Record<string, SettingDocument>>;
}

const SETTINGS: z.ZodType<SettingsDocument> = z
  .object({
    file: z.string().optional().describe('Path of the configuration file, if there is one'),
    settings: z
      .record(
        z.string(),
        z.object({
          value: z.unknown().describe('As parsed: durations in milliseconds, sizes in bytes; null: no value'),
          from: z.enum(ORIGINS),
        }),
      )
      .describe('By key of the configuration file'),
  })
  .openapi('Settings');

const GET_SETTINGS = createRoute({
  method: 'get',
  path: '/v1/settings',
  summary: 'Returns the settings in use, and where each was set; without secrets',
  responses: answers(SETTINGS, 'The settings'),
});

/** Adds the route of settings. `settings`: returns them; undefined if the process shows a recorded state. */
export function addSettingsRoute(app: ApiApp, settings: (() => SettingsDocument) | undefined): void {
  app.openapi(GET_SETTINGS, (c) => {
    if (settings !== undefined) return answerJSON(c, settings());
    throw new ProblemError('not-found', 'This process has no settings: it shows a recorded state.');
  });
}
