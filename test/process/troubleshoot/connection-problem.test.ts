import { expect, it } from 'vitest';
import { connectionProblem } from '../../../src/process/troubleshoot/connection-problem.ts';

it.each([
  ['ENOTFOUND', 'unknown-host'],
  ['EAI_AGAIN', 'no-dns'],
  ['ECONNREFUSED', 'refused'],
  ['EHOSTUNREACH', 'no-route'],
  ['ENETUNREACH', 'no-route'],
  ['ECONNRESET', 'reset'],
  ['UNABLE_TO_GET_ISSUER_CERT', 'unknown-ca'],
  ['CERT_NOT_YET_VALID', 'not-yet-valid'],
  ['EPIPE', undefined],
])('the code %s means %s', (code, problem) => {
  expect(connectionProblem(code)).toBe(problem);
});
