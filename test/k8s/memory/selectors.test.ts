import { expect, it } from 'vitest';
import { StatusError } from '../../../src/k8s/memory/api-status.ts';
import { fieldSelector, labelSelector } from '../../../src/k8s/memory/selectors.ts';
import { LabelSelectorError } from '../../../src/model/label-selector.ts';

const object = {
  metadata: {
    name: 'x',
    uid: 'u',
    resourceVersion: '1',
    labels: { app: 'web', tier: 'a', empty: '', odd: 7 },
  },
  spec: { nodeName: 'n1', replicas: 3 },
};

it.each<[string | null, boolean]>([
  [null, true],
  [' ', true],
  ['app=web', true],
  ['app==web', true],
  [' app = web ', true],
  ['app=db', false],
  ['app!=db', true],
  ['app!=web', false],
  ['other!=web', true],
  ['empty=', true],
  ['other=', false],
  ['app', true],
  ['other', false],
  ['!app', false],
  ['! other', true],
  ['odd', false],
  ['toString', false],
  ['app in (db, web)', true],
  ['app in (db)', false],
  ['other in (db)', false],
  ['app notin (db,web)', false],
  ['app notin (db)', true],
  ['other notin (db)', true],
  ['app in (db,web),tier=a', true],
  ['app in (db,web),tier=b', false],
  ['tier=b,app', false],
])('labels: %s selects: %s', (selector, expected) => {
  expect(labelSelector(selector)(object)).toBe(expected);
});

it.each<[string | null, boolean]>([
  [null, true],
  ['', true],
  ['metadata.name=x', true],
  ['metadata.name=y', false],
  ['metadata.name!=y', true],
  ['spec.nodeName=n1,metadata.name=x', true],
  ['spec.nodeName=n2,metadata.name=x', false],
  ['spec.other=', true],
  ['spec.replicas=3', false],
  ['spec.replicas=', true],
  ['metadata.name.length=1', false],
  ['constructor.name!=Object', true],
])('fields: %s selects: %s', (selector, expected) => {
  expect(fieldSelector(selector)(object)).toBe(expected);
});

it.each(['app like web', 'a=b=c', 'app in web', 'app in (a,(b))', '!', ','])('%s is no selector', (text) => {
  expect(() => labelSelector(text)).toThrow(LabelSelectorError);
  expect(() => fieldSelector(text)).toThrow(StatusError);
});
