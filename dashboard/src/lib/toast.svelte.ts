// What just happened, said once: in a corner for the eye, in a live region for the ear.

/** At once: more would hide the page. The oldest goes, and warnings go last. */
const TOASTS_MAX = 3

class Toasts {
  items = $state<{ id: number; text: string; warn: boolean }[]>([])
  private next = 0

  say(text: string, warn = false): void {
    const id = this.next++
    this.items.push({ id, text, warn })
    if (this.items.length > TOASTS_MAX) {
      const least = this.items.findIndex((item) => !item.warn)
      this.items.splice(least < 0 ? 0 : least, 1)
    }
    // A warning stays until it is read.
    if (!warn) setTimeout(() => this.drop(id), 8000)
  }

  drop(id: number): void {
    this.items = this.items.filter((item) => item.id !== id)
  }
}

export const toasts = new Toasts()

/** Says that it is done, and every warning that came with it. */
export function done(text: string, messages: string[]): void {
  toasts.say(text)
  for (const message of messages) toasts.say(message, true)
}
