/**
 * A Stryker plugin that leaves the texts of errors and assertions alone: people read them, no code decides by them.
 * Whether an error is thrown, of which class, and the other arguments remain mutated.
 */

const MESSAGES = /^(assert|\w*Error)$/;

function isText(node) {
  return node.type === 'StringLiteral' || node.type === 'TemplateLiteral';
}

export const strykerPlugins = [
  {
    kind: 'Ignore',
    name: 'message-texts',
    value: {
      shouldIgnore({ node, parent }) {
        const calls = parent?.type === 'NewExpression' || parent?.type === 'CallExpression';
        const called = calls && isText(node) && parent.callee.type === 'Identifier' ? parent.callee.name : '';
        return MESSAGES.test(called) ? 'the text of an error, read by people only' : undefined;
      },
    },
  },
];
