import { vitePreprocess } from '@sveltejs/vite-plugin-svelte'

export default {
  preprocess: vitePreprocess(),
  onwarn(warning, handler) {
    // Tables become lists of cards on a phone. Their roles are said aloud, because `display: block`
    // takes them away.
    if (warning.code === 'a11y_no_redundant_roles') return
    handler(warning)
  },
}
